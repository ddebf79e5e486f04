//! Relative links between pages lead to a file of the repository, and to a heading of it.
//!
//! A heading's anchor is made as GitHub makes it. Links to other sites are not checked: the gate needs no network.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use niclab_checks::{repository, sources};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page's links, each with its line, and the anchors of its headings.
#[derive(Default)]
struct Page {
    links: Vec<(usize, String)>,
    anchors: Vec<String>,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let line_at = |at: usize| text[..at].lines().count().max(1);
        // A reference without a definition, such as `[text][name]`, would else be plain text.
        let undefined = |link: pulldown_cmark::BrokenLink<'_>| {
            let is_reference = text[link.span.clone()].contains("][");
            is_reference.then(|| (format!("(no definition) {}", link.reference).into(), "".into()))
        };
        let parser = Parser::new_with_broken_link_callback(text, Options::ENABLE_TABLES, Some(undefined));
        for (event, place) in parser.into_offset_iter() {
            match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line_at(place.start + 1), dest_url.to_string()));
                }
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor of a heading. If the page has it already, it gets a number.
    fn add_anchor(&mut self, heading: &str) {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.flat_map(char::to_lowercase).collect::<String>().replace(' ', "-");
        let numbered = (1..).map(|number| format!("{anchor}-{number}"));
        let mut names = std::iter::once(anchor.clone()).chain(numbered);
        self.anchors.extend(names.find(|name| !self.anchors.contains(name)));
    }
}

/// Whether a link names another site, such as `https://` or `mailto:`.
fn is_external(link: &str) -> bool {
    let scheme = link.split(['/', '#', '?']).next().unwrap_or_default();
    scheme.contains(':')
}

/// A path without `.` and `..`, or `None` if it leads out of the repository.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => clean.push(name),
            Component::CurDir => {}
            Component::ParentDir => clean.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(clean)
}

/// Why a link of the page `from` is broken, if it is.
fn fault(from: &Path, link: &str, files: &[PathBuf], pages: &BTreeMap<PathBuf, Page>) -> Option<String> {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = match path {
        "" => Some(from.to_owned()),
        _ => normalized(&from.parent().unwrap_or(Path::new("")).join(path)),
    };
    let Some(target) = target else { return Some("leads out of the repository".to_owned()) };
    // A folder is a link's target, too; git lists files only.
    if !files.iter().any(|file| file.starts_with(&target)) {
        return Some(format!("there is no {}", target.display()));
    }
    let anchor = anchor?;
    let Some(page) = pages.get(&target) else {
        return Some(format!("{} is no Markdown page, and has no anchors", target.display()));
    };
    let has = page.anchors.iter().any(|known| known == anchor);
    (!has).then(|| format!("{} has no heading #{anchor}; it has {:?}", target.display(), page.anchors))
}

#[test]
fn relative_links_of_pages_resolve() {
    let files = sources();
    let is_page = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(repository().join(file));
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        (file.clone(), Page::read(&text))
    };
    let pages: BTreeMap<PathBuf, Page> = files.iter().filter(is_page).map(read).collect();
    let (mut found, mut checked) = (Vec::new(), 0);
    for (file, page) in &pages {
        for (line, link) in page.links.iter().filter(|(_, link)| !is_external(link)) {
            checked += 1;
            let fault = fault(file, link, &files, &pages);
            found.extend(fault.map(|fault| format!("{}:{line}: ({link}): {fault}", file.display())));
        }
    }
    assert!(checked > 100, "only {checked} links were found");
    assert!(found.is_empty(), "broken links:\n  {}", found.join("\n  "));
}

#[test]
fn broken_links_are_found() {
    let text = "# A `b`, c\n\n## A b c\n\n[one](x/y.md#d) `[no](none)`\n\n```\n[no](none)\n```\n\n[two]\n[t][u]\n\n\
        [two]: <z.md>\n";
    let page = Page::read(text);
    assert_eq!(page.anchors, ["a-b-c", "a-b-c-1"]);
    let expected = [(5, "x/y.md#d"), (11, "z.md"), (12, "(no definition) u")];
    assert_eq!(page.links, expected.map(|(line, link)| (line, link.to_owned())));
    assert!(is_external("https://example.org/a") && is_external("mailto:a") && !is_external("a/b:c.md#d"));

    let from = Path::new("docs/use/A.md");
    let files = ["docs/use/A.md", "docs/B.md", "ci/test"].map(PathBuf::from);
    let pages = BTreeMap::from([(from.to_owned(), page), ("docs/B.md".into(), Page::read("# D\n"))]);
    let is_broken = |link| fault(from, link, &files, &pages).is_some();
    for link in ["#a-b-c", "../B.md", "../B.md#d", "../../ci", "./A.md#a-b-c-1"] {
        assert!(!is_broken(link), "{link}");
    }
    for link in ["#d", "B.md", "../B.md#a-b-c", "../../ci/test#d", "../../../ci", "/docs/B.md"] {
        assert!(is_broken(link), "{link}");
    }
}
