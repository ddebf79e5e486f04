//! Packages from the host's Debian mirror, through a private apt.
//!
//! apt has its own state, lists, archives and settings, all in the cache. niclab reads the host's settings only for the
//! mirror and the network, and never writes them. apt checks every package against the keys of Debian's archive.

pub mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{Finished, host_command, output, stream};
use crate::error::{At, ImageError};
use sources::{Source, parse_deb822, parse_one_line};

/// The Debian release of guests and tools.
pub(crate) const SUITE: &str = "trixie";

/// The suite with the newer QEMU.
const BACKPORTS: &str = "trixie-backports";

/// Packages from [`BACKPORTS`]: QEMU 11.1 and the firmware that it requires. All others are from [`SUITE`].
const FROM_BACKPORTS: &str = "src:qemu src:seabios";

/// The keys of Debian's archive, at the paths of the package `debian-archive-keyring` (the newer name first).
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.pgp", "/usr/share/keyrings/debian-archive-keyring.gpg"];

/// Settings of the host's apt for its access to the mirror; the private apt gets them, too.
const CARRIED_SETTINGS: [&str; 12] = [
    "Acquire::http",
    "Acquire::https",
    "Acquire::ftp",
    "Acquire::socks",
    "Acquire::tor",
    "Acquire::Retries",
    "Acquire::Check-Valid-Until",
    "Acquire::Check-Date",
    "Acquire::ForceIPv4",
    "Acquire::ForceIPv6",
    "Acquire::Max-FutureTime",
    "Acquire::Queue-Mode",
];

/// The source of packages, and the keys that sign them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror {
    /// Base address.
    pub uri: String,
    /// Key files.
    keys: Vec<PathBuf>,
    /// The host's configuration trusts the mirror without verification.
    trusted: bool,
}

impl Mirror {
    /// The mirror that the user gives, or else that of the host's apt configuration.
    ///
    /// # Errors
    /// [`ImageError::BadMirror`], [`ImageError::NoMirror`], [`ImageError::NoKeyring`], or a failure of
    /// `apt-config`.
    pub fn find(given: Option<&str>) -> Result<Self, ImageError> {
        match given {
            Some(uri) => Self::given(uri),
            None => Self::of_host(&HostSettings::read()?),
        }
    }

    fn given(uri: &str) -> Result<Self, ImageError> {
        // The address is written into a configuration file, where a space or a line break would add other settings.
        let scheme_ends = uri.find(":/");
        if scheme_ends.is_none_or(|at| at == 0) || !uri.chars().all(|c| c.is_ascii_graphic() && c != '"') {
            return Err(ImageError::BadMirror { mirror: uri.to_owned() });
        }
        Ok(Self { uri: uri.to_owned(), keys: vec![archive_keyring()?], trusted: false })
    }

    fn of_host(settings: &HostSettings) -> Result<Self, ImageError> {
        let sources = settings.sources();
        let found = sources.iter().find_map(|source| Some((source, source.debian_uri()?)));
        let (source, uri) = found.ok_or_else(|| ImageError::NoMirror {
            searched: format!("{}, {}/*", settings.source_list.display(), settings.source_parts.display()),
        })?;
        let mut keys: Vec<PathBuf> = source.signed_by.iter().filter(|key| key.is_file()).cloned().collect();
        match archive_keyring() {
            Ok(keyring) if !keys.contains(&keyring) => keys.push(keyring),
            Err(error) if keys.is_empty() && !source.trusted => return Err(error),
            _ => (),
        }
        Ok(Self { uri: uri.to_owned(), keys, trusted: source.trusted })
    }

    fn sources_file(&self) -> String {
        // apt does not copy packages of a `file:` mirror, but niclab needs them in the archives.
        let uri = self.uri.strip_prefix("file:").map_or(self.uri.clone(), |path| format!("copy:{path}"));
        let keys: Vec<String> = self.keys.iter().map(|key| key.display().to_string()).collect();
        let trusted = if self.trusted { "Trusted: yes\n" } else { "" };
        format!(
            "Types: deb\nURIs: {uri}\nSuites: {SUITE} {BACKPORTS}\nComponents: main\nArchitectures: amd64\n\
             Signed-By: {}\n{trusted}",
            keys.join(" "),
        )
    }
}

fn archive_keyring() -> Result<PathBuf, ImageError> {
    let found = KEYRINGS.iter().map(PathBuf::from).find(|path| path.is_file());
    found.ok_or_else(|| ImageError::NoKeyring {
        path: KEYRINGS.iter().map(PathBuf::from).next_back().unwrap_or_default(),
    })
}

/// The parts of the host's apt configuration that niclab uses.
struct HostSettings {
    source_list: PathBuf,
    source_parts: PathBuf,
    carried: Vec<(String, String)>,
    /// Folders with credentials for mirrors.
    credentials: Vec<(&'static str, PathBuf)>,
}

impl HostSettings {
    fn read() -> Result<Self, ImageError> {
        let dump = output(host_command("apt-config").arg("dump"), "reading the host's apt configuration")?;
        Ok(Self::parse(&String::from_utf8_lossy(&dump)))
    }

    /// `dump` has lines of the form `Name "value";`.
    fn parse(dump: &str) -> Self {
        let settings: Vec<(&str, &str)> = dump
            .lines()
            .filter_map(|line| line.trim().strip_suffix("\";")?.split_once(" \""))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        let single: BTreeMap<&str, &str> = settings.iter().copied().collect();
        let get = |name: &str, default: &str| single.get(name).copied().unwrap_or(default).to_owned();
        // apt joins these paths: an absolute one replaces the ones before it.
        let etc = Path::new("/").join(get("Dir", "/")).join(get("Dir::Etc", "etc/apt"));
        let is_carried = |name: &str| {
            let below = |prefix: &&str| {
                name.strip_prefix(*prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            };
            CARRIED_SETTINGS.iter().any(below)
        };
        Self {
            source_list: etc.join(get("Dir::Etc::sourcelist", "sources.list")),
            source_parts: etc.join(get("Dir::Etc::sourceparts", "sources.list.d")),
            credentials: vec![
                ("Dir::Etc::netrc", etc.join(get("Dir::Etc::netrc", "auth.conf"))),
                ("Dir::Etc::netrcparts", etc.join(get("Dir::Etc::netrcparts", "auth.conf.d"))),
            ],
            carried: settings
                .iter()
                .filter(|(name, _)| is_carried(name))
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    /// All entries, in apt's order: first the single list, then the parts by name. An unreadable file has no entries.
    fn sources(&self) -> Vec<Source> {
        let mut paths = vec![self.source_list.clone()];
        let mut parts: Vec<PathBuf> = fs::read_dir(&self.source_parts)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        parts.sort();
        paths.extend(parts);
        paths.iter().flat_map(|path| read_sources(path)).collect()
    }
}

fn read_sources(path: &Path) -> Vec<Source> {
    let text = fs::read_to_string(path).unwrap_or_default();
    match path.extension().and_then(|e| e.to_str()) {
        Some("list") => parse_one_line(&text),
        Some("sources") => parse_deb822(&text),
        _ => Vec::new(),
    }
}

/// A package in the version that apt chose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub name: String,
    pub version: String,
    pub architecture: String,
}

impl Package {
    /// The name apt gives the downloaded file.
    pub fn file_name(&self) -> String {
        format!("{}_{}_{}.deb", self.name, self.version.replace(':', "%3a"), self.architecture)
    }
}

/// The private apt, ready to resolve and download.
pub(crate) struct Apt {
    folder: PathBuf,
    mirror: Mirror,
    /// For messages.
    cache: PathBuf,
}

impl Apt {
    /// Sets up apt in `cache` and fetches the mirror's lists. `what` names their purpose, for errors.
    pub fn open(
        cache: &Path,
        mirror: Mirror,
        what: &str,
        mut detail: impl FnMut(&str),
    ) -> Result<Self, ImageError> {
        let apt = Self { folder: cache.join("apt"), mirror, cache: cache.to_owned() };
        apt.configure()?;
        detail(&format!("package lists from {}", apt.mirror.uri));
        let mut update = apt.command("apt-get");
        // By default, apt ignores a mirror that does not answer.
        update.args(["-q", "-o", "APT::Update::Error-Mode=any", "update"]);
        let end = stream(&mut update, |line| detail(line))?;
        if !end.success {
            return Err(apt.fetch_error(what, end));
        }
        Ok(apt)
    }

    fn configure(&self) -> Result<(), ImageError> {
        let etc = self.folder.join("etc");
        for folder in [etc.join("empty"), self.folder.join("lists/partial")] {
            fs::create_dir_all(&folder).at("create", &folder)?;
        }
        let write = |path: PathBuf, text: &str| fs::write(&path, text).at("write", &path);
        let host = HostSettings::read()?;
        write(etc.join("apt.conf"), &self.settings(&host))?;
        write(etc.join("mirror.sources"), &self.mirror.sources_file())?;
        let pin = format!("Package: {FROM_BACKPORTS}\nPin: release n={BACKPORTS}\nPin-Priority: 990\n");
        write(etc.join("preferences"), &pin)?;
        // For this apt no package is installed, so it lists every dependency.
        write(self.folder.join("status"), "")
    }

    fn settings(&self, host: &HostSettings) -> String {
        let mut text = String::new();
        let mut set = |name: &str, value: &str| {
            let _ = writeln!(text, "{name} \"{value}\";");
        };
        let path = |name: &str| self.folder.join(name).display().to_string();
        for (name, value) in [
            ("Dir::State", path("")),
            ("Dir::State::lists", path("lists")),
            ("Dir::State::status", path("status")),
            ("Dir::Cache", path("")),
            ("Dir::Etc", path("etc")),
            ("Dir::Etc::main", "/dev/null".to_owned()),
            ("Dir::Etc::parts", path("etc/empty")),
            ("Dir::Etc::sourcelist", path("etc/mirror.sources")),
            ("Dir::Etc::sourceparts", path("etc/empty")),
            ("Dir::Etc::preferences", path("etc/preferences")),
            ("Dir::Etc::preferencesparts", path("etc/empty")),
            ("Dir::Etc::trusted", path("etc/none")),
            ("Dir::Etc::trustedparts", path("etc/empty")),
        ] {
            set(name, &value);
        }
        for (name, path) in &host.credentials {
            set(name, &path.display().to_string());
        }
        set("APT::Architecture", "amd64");
        set("APT::Architectures::", "amd64");
        set("APT::Install-Recommends", "false");
        // Otherwise root's apt would become `_apt`, which cannot write into the user's folder.
        set("APT::Sandbox::User", "root");
        set("Acquire::Languages", "none");
        for (name, value) in &host.carried {
            set(name, value);
        }
        text
    }

    fn command(&self, program: &str) -> Command {
        let mut command = host_command(program);
        command.env("APT_CONFIG", self.folder.join("etc/apt.conf"));
        command
    }

    /// The packages to download for `packages`, including all dependencies, sorted by name. A package may be an apt
    /// pattern, such as `?essential`.
    pub fn resolve(&self, packages: &[String]) -> Result<Vec<Package>, ImageError> {
        let mut command = self.command("apt-get");
        command.args(["-q", "-s", "install", "--"]).args(packages);
        let mut found = Vec::new();
        let end = stream(&mut command, |line| found.extend(parse_simulated(line)))?;
        if !end.success || found.is_empty() {
            let packages = packages.join(" ");
            return Err(ImageError::Packages { suite: SUITE, packages, output: end.tail });
        }
        found.sort();
        Ok(found)
    }

    /// Downloads `packages` (as given to [`Apt::resolve`], which returned `resolved`) and returns the files. Uses what
    /// an interrupted call has downloaded.
    pub fn download(
        &self,
        what: &str,
        packages: &[String],
        resolved: &[Package],
        mut detail: impl FnMut(&str),
    ) -> Result<Vec<PathBuf>, ImageError> {
        let archives = self.archives();
        let partial = archives.join("partial");
        fs::create_dir_all(&partial).at("create", &partial)?;
        let mut command = self.command("apt-get");
        command.args(["-q", "-y", "--download-only", "install", "--"]).args(packages);
        let mut count = 0;
        let end = stream(&mut command, |line| {
            if let Some(got) = line.strip_prefix("Get:") {
                count += 1;
                let package = got.split_whitespace().nth(4).unwrap_or_default();
                detail(&format!("downloading {count} of {}: {package}", resolved.len()));
            }
        })?;
        if !end.success {
            return Err(self.fetch_error(what, end));
        }
        let files: Vec<PathBuf> = resolved.iter().map(|package| archives.join(package.file_name())).collect();
        match files.iter().find(|file| !file.is_file()) {
            None => Ok(files),
            Some(missing) => {
                let tail = format!("{}\n{} did not arrive", end.tail, missing.display());
                Err(self.fetch_error(what, Finished { tail, ..end }))
            }
        }
    }

    /// Removes downloaded packages; call it when the artefact that needed them is built.
    pub fn clean(&self) -> Result<(), ImageError> {
        crate::cache::remove_all(&self.archives())
    }

    fn archives(&self) -> PathBuf {
        self.folder.join("archives")
    }

    fn fetch_error(&self, what: &str, end: Finished) -> ImageError {
        ImageError::Fetch {
            what: what.to_owned(),
            mirror: self.mirror.uri.clone(),
            cache: self.cache.clone(),
            output: end.tail,
        }
    }
}

/// Reads a line of `apt-get -s`: `Inst NAME [OLD] (VERSION ORIGIN... [ARCHITECTURE]) [WAITING]`.
fn parse_simulated(line: &str) -> Option<Package> {
    let (name, rest) = line.strip_prefix("Inst ")?.split_once(' ')?;
    let (_, rest) = rest.split_once('(')?;
    let version = rest.split_whitespace().next()?;
    // The packages in brackets after the parenthesis wait for this one.
    let (_, architecture) = rest.split_once("])")?.0.rsplit_once('[')?;
    Some(Package { name: name.into(), version: version.into(), architecture: architecture.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_simulated_installation_names_files() {
        let line =
            "Inst qemu-system-x86 (1:11.1.3+ds-1~bpo13+1 Debian Backports:stable-backports, X:y [amd64])";
        let package = parse_simulated(line).unwrap();
        assert_eq!(package.file_name(), "qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb");
        let waited_for =
            parse_simulated("Inst libc6 (2.41-12 Debian:13.7/stable [amd64]) [libgcc-s1:amd64 ]");
        assert_eq!(waited_for.unwrap().file_name(), "libc6_2.41-12_amd64.deb");
        assert_eq!(parse_simulated("Conf a (1 X [all])"), None);
        assert_eq!(parse_simulated("Inst a"), None);
    }

    fn host_with(folder: &Path, files: &[(&str, &str)]) -> HostSettings {
        fs::create_dir_all(folder.join("sources.list.d")).unwrap();
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        let dump = format!(
            "Dir \"/\";\nDir::Etc \"{}\";\nAcquire::http::Proxy \"http://proxy.example.org:3128\";\n\
             Acquire::httpx \"no\";\nAcquire \"\";\nAPT::Update::Post-Invoke:: \"rm -f /x\";\n",
            folder.display()
        );
        HostSettings::parse(&dump)
    }

    #[test]
    fn the_hosts_mirror_is_found_among_others() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_with(
            dir.path(),
            &[
                ("sources.list", "deb http://example.org/debian-security x main\n"),
                ("sources.list.d/a.list", "deb [trusted=yes] https://vendor.example.org/apt stable main\n"),
                (
                    "sources.list.d/b.sources",
                    "Types: deb\nURIs: http://mirror.example.org/debian\nSuites: bookworm\nComponents: main\nTrusted: \
                     yes\n",
                ),
                ("sources.list.d/c.list.bak", "deb http://wrong.example.org/debian x main\n"),
            ],
        );
        let mirror = Mirror::of_host(&host).unwrap();
        assert_eq!(mirror.uri, "http://mirror.example.org/debian");
        assert!(mirror.sources_file().contains("Suites: trixie trixie-backports\n"));
    }

    #[test]
    fn only_network_settings_are_carried_over() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_with(dir.path(), &[]);
        assert_eq!(
            host.carried,
            [("Acquire::http::Proxy".to_owned(), "http://proxy.example.org:3128".to_owned())]
        );
    }

    #[test]
    fn a_host_without_debian_gets_the_fix() {
        let dir = tempfile::tempdir().unwrap();
        let host = host_with(dir.path(), &[("sources.list", "deb http://example.org/ubuntu noble main\n")]);
        let message = Mirror::of_host(&host).unwrap_err().to_string();
        assert!(message.contains("--mirror URL") && message.contains("sources.list"), "{message}");
    }

    #[test]
    fn packages_of_a_mirror_on_disk_are_copied() {
        let mirror = Mirror { uri: "file:/srv/debian".into(), keys: vec!["/k".into()], trusted: false };
        assert!(mirror.sources_file().contains("URIs: copy:/srv/debian\n"));
    }

    #[test]
    fn mirror_that_would_break_the_file_is_refused() {
        for bad in
            ["", "example.org/debian", "http://example.org/debian\nTrusted: yes", "http://a b/debian", ":/x"]
        {
            assert!(matches!(Mirror::given(bad), Err(ImageError::BadMirror { .. })), "{bad:?}");
        }
    }
}
