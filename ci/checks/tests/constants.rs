//! Each number in a model names its source, or says that it is fitted, assumed, or niclab's own.
//!
//! A model's times and sizes decide the results that are compared with papers. So each constant of the models, and each
//! default of a card's parameters, has a comment. The comment names a source (a section, table or figure of the paper,
//! a specification), or says `Fitted:`, `Assumed:` or `Ours:`. `Ours:` marks niclab's own decisions (formats,
//! interfaces, bounds against hostile guests).
//!
//! If all constants of a file have one source, the file says it once: `//! Constants: ours.`

use std::fs;
use std::path::Path;

use niclab_checks::modules::{attributes, is_test};
use niclab_checks::{repository, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The folders of models and their parts.
const MODEL_FOLDERS: [&str; 6] = [
    "device/model/src/models/",
    "device/model/src/parts/",
    "device/model/src/platform/",
    "device/model/src/fabric/",
    "device/matching/processors/src/",
    "firmware/matching/isa/src/",
];
/// Files whose struct literals contain the defaults of cards.
const DEFAULTS: [&str; 2] = ["config.rs", "descriptor.rs"];
/// Words that name a source, or mark a number without one.
const WORDS: [&str; 14] = [
    "section ",
    "sections ",
    "table ",
    "figure ",
    "specification",
    "ieee",
    "rfc ",
    "2114",
    "3c595",
    "data sheet",
    "fitted:",
    "assumed:",
    "ours:",
    "the paper",
];
/// The beginning of a comment about all constants of a file.
const OF_ALL: &str = "constants: ";

fn names_source(comment: &str) -> bool {
    let comment = comment.to_lowercase();
    WORDS.iter().any(|word| comment.contains(word))
}

fn docs(attributes: &[syn::Attribute]) -> String {
    let mut text = String::new();
    for attribute in attributes {
        if let syn::Meta::NameValue(pair) = &attribute.meta
            && pair.path.is_ident("doc")
            && let syn::Expr::Lit(literal) = &pair.value
            && let syn::Lit::Str(line) = &literal.lit
        {
            text += &line.value();
            text.push('\n');
        }
    }
    text
}

/// Whether an expression has a number other than 0, 1 and 2. These count or double, and need no source.
#[derive(Default)]
struct Numbers {
    found: bool,
}

impl<'ast> Visit<'ast> for Numbers {
    fn visit_lit(&mut self, literal: &'ast syn::Lit) {
        match literal {
            syn::Lit::Int(number) => {
                self.found |= number.base10_parse::<u128>().is_ok_and(|number| number > 2);
            }
            syn::Lit::Float(_) => self.found = true,
            _ => {}
        }
    }
}

fn has_number(expression: &syn::Expr) -> bool {
    let mut numbers = Numbers::default();
    numbers.visit_expr(expression);
    numbers.found
}

struct Constants<'a> {
    lines: Vec<&'a str>,
    has_defaults: bool,
    /// The lines and names of constants without a source.
    silent: Vec<(usize, String)>,
    seen: usize,
}

impl Constants<'_> {
    fn constant(&mut self, name: &syn::Ident, attributes: &[syn::Attribute], value: &syn::Expr) {
        if has_number(value) {
            self.seen += 1;
            let line = name.span().start().line;
            if !names_source(&docs(attributes)) && !names_source(&self.comments_at(line)) {
                self.silent.push((line, name.to_string()));
            }
        }
    }

    /// The comment on a line, and the comment lines directly above it.
    fn comments_at(&self, line: usize) -> String {
        let comment_of = |text: &str| text.split_once("//").map(|(_, comment)| comment.to_owned());
        let own = self.lines.get(line - 1).and_then(|text| comment_of(text)).unwrap_or_default();
        let above = self.lines[..line - 1].iter().rev();
        let above = above.map(|text| text.trim_start()).take_while(|text| text.starts_with("//"));
        above.fold(own, |all, text| format!("{all}\n{text}"))
    }
}

impl<'ast> Visit<'ast> for Constants<'_> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        if !is_test(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        // A parameter has an `Origin` for its default, without which it does not compile. `WORK` and `NONE` are prices
        // of work, and not of time.
        if ["PARAMETERS", "WORK", "NONE"].iter().any(|table| item.ident == table) {
            return;
        }
        self.constant(&item.ident, &item.attrs, &item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        if item.ident == "NONE" {
            return;
        }
        self.constant(&item.ident, &item.attrs, &item.expr);
    }

    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        let kind = literal.path.segments.last().map(|segment| segment.ident.to_string());
        let is_card = kind.is_some_and(|kind| kind == "Self" || kind.ends_with("Config"));
        for field in literal.fields.iter().filter(|_| self.has_defaults && is_card) {
            let syn::Member::Named(name) = &field.member else { continue };
            if !matches!(field.expr, syn::Expr::Struct(_)) && has_number(&field.expr) {
                self.seen += 1;
                let line = field.span().start().line;
                if !names_source(&self.comments_at(line)) {
                    self.silent.push((line, name.to_string()));
                }
            }
        }
        visit::visit_expr_struct(self, literal);
    }
}

/// The constants of a file without a source, and the number of all its constants.
fn silent(name: &str, text: &str) -> (Vec<(usize, String)>, usize) {
    let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let has_defaults =
        Path::new(name).file_name().is_some_and(|file| DEFAULTS.iter().any(|wanted| file == *wanted));
    let mut constants =
        Constants { lines: text.lines().collect(), has_defaults, silent: Vec::new(), seen: 0 };
    constants.visit_file(&parsed);
    if docs(&parsed.attrs).to_lowercase().contains(OF_ALL) {
        constants.silent.clear();
    }
    (constants.silent, constants.seen)
}

#[test]
fn every_constant_of_a_model_names_its_source() {
    let (mut all, mut seen) = (Vec::new(), 0);
    for file in sources() {
        let name = file.display().to_string();
        let is_model = MODEL_FOLDERS.iter().any(|room| name.starts_with(room)) && name.ends_with(".rs");
        if !is_model || name.ends_with("/tests.rs") {
            continue;
        }
        let text = fs::read_to_string(repository().join(&file)).unwrap();
        let (silent, constants) = silent(&name, &text);
        seen += constants;
        all.extend(silent.into_iter().map(|(line, constant)| format!("{name}:{line}: {constant}")));
    }
    assert!(seen > 100, "only {seen} constants found: check that MODEL_FOLDERS has the models' folders");
    assert!(
        all.is_empty(),
        "{} constants name no source: name the section, table, figure or specification, or say `Fitted:`, \
         `Assumed:` or `Ours:`\n  {}",
        all.len(),
        all.join("\n  ")
    );
}

#[test]
fn a_constant_without_a_source_is_found() {
    let of =
        |name: &str, text: &str| silent(name, text).0.into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    let bare = "/// Cycles.\nconst CYCLES: u64 = 16;\n";
    assert_eq!(of("engine.rs", bare), ["CYCLES"]);
    for doc in ["/// Cycles (section 4.2).", "/// Cycles. Assumed: an SRAM's.", "/// Ours: a bound."] {
        assert!(of("engine.rs", &format!("{doc}\nconst CYCLES: u64 = 16;\n")).is_empty(), "{doc}");
    }
    assert!(of("wire.rs", &format!("//! The format.\n//!\n//! Constants: ours.\n\n{bare}")).is_empty());
    assert!(of("engine.rs", "const FLAG: u8 = 1;\n").is_empty(), "0, 1 and 2 need no source");
    let config = "impl Config { fn new() -> Self { Self { depth: 16, node: 0 } } }\n";
    assert_eq!(of("config.rs", config), ["depth"]);
    assert!(of("nic.rs", config).is_empty(), "these are no defaults of a card");
    let sourced = config.replace("depth: 16,", "\n// Section 4.\ndepth: 16,\n");
    assert!(of("config.rs", &sourced).is_empty());
    let trailing = config.replace("depth: 16, node: 0", "depth: 16, // Assumed: enough.\nnode: 0");
    assert!(of("config.rs", &trailing).is_empty());
    assert!(of("engine.rs", "#[cfg(test)]\nmod tests { const N: u64 = 100; }").is_empty());
}
