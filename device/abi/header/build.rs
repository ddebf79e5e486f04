//! Reads the sources of `niclab-abi` and writes a table of its constants and layouts, in order, as Rust source.
//!
//! The table names each constant by its path, so the compiler evaluates the constant.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Expr, Field, Ident, Item, Lit, LitInt, Meta, Token, Visibility};

type Failure = Box<dyn std::error::Error>;

/// Modules in the order of the header.
const MODULES: [&str; 14] = [
    "", "config", "bar", "receive", "control", "event", "region", "matching", "inic", "grim", "rings",
    "gamma", "firmware", "ioctl",
];

fn main() -> Result<(), Failure> {
    let sources = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../src");
    println!("cargo::rerun-if-changed={}", sources.display());
    let mut table = String::from(
        "// The constants are of several widths.\n#[allow(clippy::unnecessary_cast)]\nconst ITEMS: &[Item] = &[\n",
    );
    for module in MODULES {
        let file = sources.join(if module.is_empty() { "lib.rs".into() } else { format!("{module}.rs") });
        let parsed = syn::parse_file(&fs::read_to_string(&file)?)?;
        writeln!(table, "Item::Section {{ doc: {:?} }},", doc(&parsed.attrs))?;
        for item in &parsed.items {
            write_item(&mut table, module, item)?;
        }
    }
    table.push_str("];\n");
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("items.rs"), table)?;
    Ok(())
}

fn write_item(table: &mut String, module: &str, item: &Item) -> Result<(), Failure> {
    match item {
        Item::Const(constant) if matches!(constant.vis, Visibility::Public(_)) => {
            let name = &constant.ident;
            let path = if module.is_empty() { name.to_string() } else { format!("{module}::{name}") };
            let doc = doc(&constant.attrs);
            writeln!(
                table,
                "Item::Constant {{ name: \"{name}\", value: niclab_abi::{path} as u64, doc: {doc:?} }},"
            )?;
        }
        Item::Macro(call) if call.mac.path.is_ident("layout") && call.ident.is_none() => {
            let layout: Layout = call.mac.parse_body()?;
            write!(
                table,
                "Item::Layout {{ name: \"{}\", bytes: {}, doc: {:?}, fields: &[",
                layout.name, layout.bytes, layout.doc
            )?;
            for field in &layout.fields {
                let name = field.ident.as_ref().ok_or("a layout's field has no name")?;
                let kind = &field.ty;
                write!(
                    table,
                    "({:?}, \"{}\", {:?}),",
                    name.to_string(),
                    quote::quote!(#kind),
                    doc(&field.attrs)
                )?;
            }
            table.push_str("] },\n");
        }
        _ => {}
    }
    Ok(())
}

/// The body of a `layout!` call: a structure with its size after the name.
struct Layout {
    doc: String,
    name: Ident,
    bytes: u64,
    fields: Vec<Field>,
}

impl Parse for Layout {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let doc = doc(&input.call(Attribute::parse_outer)?);
        input.parse::<Token![pub]>()?;
        input.parse::<Token![struct]>()?;
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let bytes = input.parse::<LitInt>()?.base10_parse()?;
        let body;
        syn::braced!(body in input);
        let fields = body.parse_terminated(Field::parse_named, Token![,])?.into_iter().collect();
        Ok(Self { doc, name, bytes, fields })
    }
}

/// The documentation comment in `attributes`, its lines joined by newlines.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim_end().trim_start_matches(' ').to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}
