//! Reading apt's source lists, in both of apt's formats.
//!
//! Reads only what is needed to find the host's mirror: see sources.list(5). Invalid lines are skipped; apt itself
//! reports them to the host's owner.

use std::path::PathBuf;

/// One entry: packages of `components` in `suites`, at each of `uris`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// Base addresses, as written.
    pub uris: Vec<String>,
    /// Releases, such as `trixie`.
    pub suites: Vec<String>,
    /// Components, such as `main`.
    pub components: Vec<String>,
    /// Files with the keys that sign it; embedded keys and fingerprints are ignored.
    pub signed_by: Vec<PathBuf>,
    /// The host's configuration trusts it without verification.
    pub trusted: bool,
}

impl Source {
    /// The first address of Debian itself, not of its security archive or of another vendor.
    pub fn debian_uri(&self) -> Option<&str> {
        let main = self.components.iter().any(|c| c == "main");
        self.uris.iter().map(String::as_str).find(|uri| main && serves_debian(uri))
    }
}

/// By convention a mirror's path ends in `debian`. Snapshots add a time (`debian/20250520T000000Z`), and mirror lists
/// (apt-transport-mirror(1)) are files with the name `debian.list`.
fn serves_debian(uri: &str) -> bool {
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    if scheme == "cdrom" {
        return false;
    }
    let mut segments = rest.trim_end_matches('/').rsplit('/');
    let (last, before) = (segments.next().unwrap_or_default(), segments.next().unwrap_or_default());
    let is_time = last.len() == 16 && last.ends_with('Z') && last.starts_with(|c: char| c.is_ascii_digit());
    last == "debian"
        || (before == "debian" && is_time)
        || (scheme.starts_with("mirror") && last == "debian.list")
}

/// Reads the one-line format (`*.list`): `deb [option=value ...] URI SUITE COMPONENT...`
pub fn parse_one_line(text: &str) -> Vec<Source> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<Source> {
    let line = line.split('#').next().unwrap_or_default().trim();
    let rest = line.strip_prefix("deb").filter(|rest| rest.starts_with([' ', '\t', '[']))?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => ("", rest),
    };
    let mut words = rest.split_whitespace().map(str::to_owned);
    let mut source = Source {
        uris: vec![words.next()?],
        suites: vec![words.next()?],
        components: words.collect(),
        ..Source::default()
    };
    for option in options.split_whitespace() {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name.trim_end_matches(['+', '-']).to_ascii_lowercase().as_str() {
            "signed-by" => source.signed_by = key_files(value),
            "trusted" => source.trusted = is_true(value),
            _ => (),
        }
    }
    Some(source)
}

/// Reads the deb822 format (`*.sources`): stanzas of `Field: value`, continued by indented lines.
pub fn parse_deb822(text: &str) -> Vec<Source> {
    let without_comments: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    without_comments.split(|line| line.trim().is_empty()).filter_map(parse_stanza).collect()
}

fn parse_stanza(lines: &[&str]) -> Option<Source> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in lines {
        if line.starts_with([' ', '\t']) {
            let (_, value) = fields.last_mut()?;
            value.push(' ');
            value.push_str(line.trim());
        } else {
            let (name, value) = line.split_once(':')?;
            fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let field = |name: &str| fields.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
    let words = |name: &str| -> Vec<String> {
        field(name).unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    let enabled = field("enabled").is_none_or(is_true);
    if !enabled || !words("types").iter().any(|t| t == "deb") {
        return None;
    }
    let source = Source {
        uris: words("uris"),
        suites: words("suites"),
        components: words("components"),
        signed_by: key_files(field("signed-by").unwrap_or_default()),
        trusted: field("trusted").is_some_and(is_true),
    };
    (!source.uris.is_empty() && !source.suites.is_empty()).then_some(source)
}

/// apt's definition of a true value (StringToBool).
fn is_true(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "yes" | "true" | "with" | "on" | "enable" | "1")
}

fn key_files(value: &str) -> Vec<PathBuf> {
    value.split([',', ' ', '\t']).filter(|word| word.starts_with('/')).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_line_with_options_and_comments() {
        let text = "# deb http://example.org/no trixie main\n\
                    deb-src http://example.org/debian trixie main\n\
                    deb [ arch=amd64 signed-by=/k/a.gpg,/k/b.gpg trusted=yes ] http://example.org/debian \
                    trixie main contrib # why\n\
                    deb\n";
        let found = parse_one_line(text);
        assert_eq!(found.len(), 1);
        let source = found.first().unwrap();
        assert_eq!(source.components, ["main", "contrib"]);
        assert_eq!(source.signed_by, [PathBuf::from("/k/a.gpg"), PathBuf::from("/k/b.gpg")]);
        assert!(source.trusted);
        assert_eq!(source.debian_uri(), Some("http://example.org/debian"));
    }

    #[test]
    fn deb822_as_in_stock_images() {
        let text = "Types: deb\n# http://example.org/a comment in the stanza\nURIs: http://example.org/debian\n\
                    Suites: bookworm\n bookworm-updates\nComponents: main\n\
                    Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n\n\
                    Types: deb\nURIs: http://example.org/debian-security\nSuites: bookworm-security\n\
                    Components: main\n\nTypes: deb\nEnabled: no\nURIs: http://example.org/debian\n\
                    Suites: sid\nComponents: main\n";
        let found = parse_deb822(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(found.iter().filter_map(Source::debian_uri).count(), 1);
    }

    #[test]
    fn addresses_of_debian_are_recognised() {
        for uri in [
            "http://example.org/debian",
            "https://example.org/mirror/debian/",
            "http://example.org/archive/debian/20250520T000000Z",
            "mirror+file:///etc/apt/mirrors/debian.list",
            "file:/srv/debian",
        ] {
            assert!(serves_debian(uri), "{uri}");
        }
        for uri in [
            "http://example.org/debian-security",
            "http://example.org/ubuntu",
            "mirror+file:///etc/apt/mirrors/debian-security.list",
            "cdrom:[x]/debian",
            "debian",
            "",
        ] {
            assert!(!serves_debian(uri), "{uri}");
        }
    }

    #[test]
    fn embedded_keys_are_not_taken_for_files() {
        let text = "Types: deb\nURIs: http://example.org/debian\nSuites: s\nComponents: main\n\
                    Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEY\n";
        let found = parse_deb822(text);
        assert_eq!(found.len(), 1);
        assert!(found[0].signed_by.is_empty());
    }

    fn word() -> impl Strategy<Value = String> {
        "[a-z][a-z0-9.-]{0,11}"
    }

    fn source() -> impl Strategy<Value = Source> {
        let uri = (word(), word()).prop_map(|(host, path)| format!("http://{host}/{path}"));
        let keys = prop::collection::vec(word().prop_map(|w| PathBuf::from(format!("/keys/{w}"))), 0..3);
        (uri, word(), prop::collection::vec(word(), 1..4), keys, any::<bool>()).prop_map(
            |(uri, suite, components, signed_by, trusted)| Source {
                uris: vec![uri],
                suites: vec![suite],
                components,
                signed_by,
                trusted,
            },
        )
    }

    fn keys_text(source: &Source, separator: &str) -> String {
        source.signed_by.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(separator)
    }

    proptest! {
        /// Entries are the same after writing and reading them in either format.
        #[test]
        fn both_formats_give_the_same_entries(entries in prop::collection::vec(source(), 0..5)) {
            let mut lines = String::new();
            let mut stanzas = String::from("\n");
            for s in &entries {
                let trusted = if s.trusted { "yes" } else { "no" };
                let keys = keys_text(s, ",");
                let signed = if keys.is_empty() { String::new() } else { format!("signed-by={keys} ") };
                lines += &format!("deb [{signed}trusted={trusted}] {} {} {}\n# x\n\n",
                    s.uris[0], s.suites[0], s.components.join(" "));
                stanzas += &format!("Types: deb deb-src\nURIs: {}\nSuites:\n {}\nComponents: {}\n\
                    Trusted: {trusted}\nSigned-By: {}\n\n",
                    s.uris[0], s.suites[0], s.components.join(" "), keys_text(s, " "));
            }
            prop_assert_eq!(&parse_one_line(&lines), &entries);
            prop_assert_eq!(&parse_deb822(&stanzas), &entries);
        }

        #[test]
        fn no_text_makes_the_readers_panic(text in "(?s)[ -~\n\t]{0,300}") {
            for source in parse_one_line(&text).into_iter().chain(parse_deb822(&text)) {
                prop_assert!(!source.uris.is_empty() && !source.suites.is_empty());
                let _ = source.debian_uri();
            }
        }
    }
}
