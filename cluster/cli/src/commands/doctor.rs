//! `niclab doctor`: which parts of the host niclab uses and why, which are missing, and how to get them.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::Result;
use niclab_cluster::{
    boot::template,
    host::runtime::RuntimeRoot,
    output::table,
    plan::accelerator::Accelerator,
    programs::{self, Origin},
};
use niclab_images::{Cache, Survey, survey};
use niclab_spec::{AcceleratorChoice, MAX_BOOTED_NODES, descriptors};
use serde::Serialize;

use super::terminal;
use crate::arguments::DoctorArgs;

/// The version of the JSON.
const DOCTOR_VERSION: u32 = 1;

/// Programs of the host that a niclab of a source tree needs to build its own programs, in addition to those for the
/// images.
const BUILD_TOOLS: [(&str, &str); 2] =
    [("cargo", "install the Rust toolchain"), ("cc", "install the package gcc")];

#[derive(Serialize)]
struct Diagnosis {
    version: u32,
    checks: Vec<Check>,
}

/// One line of the table.
#[derive(Serialize)]
struct Check {
    what: String,
    state: State,
    found: String,
    /// How to fix it; empty if nothing needs a fix.
    #[serde(rename = "fix")]
    remedy: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Good,
    /// Not in the cache yet; the first run builds it.
    WillBeBuilt,
    Missing,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::WillBeBuilt => "will be built",
            Self::Missing => "MISSING",
        }
    }
}

/// Prints the table. The code is 1 if something is missing that `niclab run` cannot build.
///
/// # Errors
/// When no path for a cache folder is known.
pub fn run(args: &DoctorArgs) -> Result<u8> {
    let cache = Cache::locate()?;
    let templates = template::count(&cache);
    let diagnosis =
        Diagnosis { version: DOCTOR_VERSION, checks: checks(&survey(&cache), templates, &Origin::find()) };
    let is_missing = diagnosis.checks.iter().any(|check| check.state == State::Missing);
    terminal::print(&if args.json { serde_json::to_string_pretty(&diagnosis)? } else { text(&diagnosis) })?;
    Ok(u8::from(is_missing))
}

fn checks(survey: &Survey, templates: usize, origin: &Origin) -> Vec<Check> {
    let mut checks = vec![installation(origin), own_programs(origin), accelerator()];
    checks.extend(artefacts(survey, templates));
    checks.push(cache(survey));
    checks.extend(survey.other_layouts.iter().map(|path| Check {
        remedy: format!("remove {} when no older niclab needs it", path.display()),
        ..good("cache of another version", path.display().to_string())
    }));
    checks.push(match &survey.mirror {
        Ok(mirror) => good("Debian mirror", mirror.clone()),
        Err(error) => missing("Debian mirror", error.clone(), "give one with --mirror"),
    });
    for tool in &survey.tools {
        checks.push(match &tool.path {
            Some(path) => good(tool.name, path.display().to_string()),
            None => {
                missing(tool.name, "not in PATH".to_owned(), &format!("install the package {}", tool.package))
            }
        });
    }
    let build_tools: &[_] = if matches!(origin, Origin::SourceTree(_)) { &BUILD_TOOLS } else { &[] };
    for &(name, remedy) in build_tools {
        checks.push(match in_path(name) {
            Some(path) => good(name, path.display().to_string()),
            None => missing(name, "not in PATH".to_owned(), remedy),
        });
    }
    checks.push(open_files(descriptors::hard_limit()));
    checks.push(sandbox(programs::built_device()));
    checks.push(match RuntimeRoot::locate() {
        Ok(root) => good("runtime folder", root.path().display().to_string()),
        Err(error) => {
            missing("runtime folder", error.to_string(), "set NICLAB_RUNTIME_DIR to a folder of your own")
        }
    });
    checks
}

/// Which niclab this is: of a source tree, of an unpacked release, or of the Debian package.
fn installation(origin: &Origin) -> Check {
    let kind = match origin {
        Origin::SourceTree(tree) if tree.is_own => format!("source tree {}", tree.root.display()),
        Origin::SourceTree(tree) => {
            format!("installed by cargo from the source tree {}", tree.root.display())
        }
        Origin::Release(folder) => format!("unpacked release, {}", folder.display()),
        Origin::Package(folder) => format!("Debian package, {}", folder.display()),
        Origin::Variable(folder) => format!("programs of NICLAB_PROGRAMS, {}", folder.display()),
        Origin::Nowhere { folder, .. } => format!("the command alone, {}", folder.display()),
    };
    good("niclab", format!("{}: {kind}", env!("CARGO_PKG_VERSION")))
}

/// niclab's own programs, of which a source tree builds those that are missing.
fn own_programs(origin: &Origin) -> Check {
    const WHAT: &str = "niclab's programs";
    let names = |is_wanted: bool| {
        let programs = origin.cluster_programs();
        let names = programs.iter().filter(|(_, is_there)| *is_there == is_wanted).map(|(name, _)| *name);
        names.collect::<Vec<_>>().join(", ")
    };
    let (there, absent) = (names(true), names(false));
    if absent.is_empty() {
        return good(WHAT, there);
    }
    let found =
        if there.is_empty() { format!("missing: {absent}") } else { format!("{there}; missing: {absent}") };
    if matches!(origin, Origin::SourceTree(_)) {
        let remedy = "niclab builds each program when a command needs it".to_owned();
        Check { what: WHAT.to_owned(), state: State::WillBeBuilt, found, remedy }
    } else {
        missing(
            WHAT,
            found,
            "use the niclab of a source tree or of an unpacked release (docs/use/INSTALL.md)",
        )
    }
}

/// The parts that a run finds in the cache or builds into it. A run can build nothing if the cache is unusable.
fn artefacts(survey: &Survey, templates: usize) -> Vec<Check> {
    let images = format!("{} initramfs, {} with packages", survey.initramfs_count, survey.disk_count);
    let templates = (templates > 0).then(|| format!("{templates} of booted guests"));
    let mut checks = vec![
        built("QEMU", survey.qemu_version.as_ref()),
        built("guest kernel", survey.kernel_release.as_ref()),
        built("kernel module", survey.module.then_some("built for that kernel")),
        built("guest images", (survey.initramfs_count > 0).then_some(images)),
        built("templates", templates),
    ];
    if survey.cache_free_bytes.is_err() {
        for check in checks.iter_mut().filter(|check| check.state == State::WillBeBuilt) {
            *check = missing(&check.what, "the cache cannot be used".to_owned(), "see `cache` below");
        }
    }
    checks
}

fn cache(survey: &Survey) -> Check {
    const GIB: u64 = 1 << 30;
    match &survey.cache_free_bytes {
        Ok(free) => {
            let tenths = free.saturating_mul(10) / GIB;
            let found = format!("{}, {}.{} GiB free", survey.cache.display(), tenths / 10, tenths % 10);
            good("cache", found)
        }
        Err(error) => missing("cache", error.clone(), "set NICLAB_CACHE to a folder of your own"),
    }
}

fn accelerator() -> Check {
    match Accelerator::choose(AcceleratorChoice::Auto) {
        Ok(accelerator) => good("accelerator", format!("{}: {}", accelerator.name(), accelerator.reason)),
        // `auto` always finds one.
        Err(error) => missing("accelerator", error.to_string(), "use accelerator = \"tcg\""),
    }
}

/// Whether the limit of open files is enough for a daemon with the maximum number of nodes.
fn open_files(limit: u64) -> Check {
    const WHAT: &str = "open files";
    const SMALLEST_CLUSTER: u64 = 2;
    let fit = descriptors::nodes_within(limit).min(MAX_BOOTED_NODES.into());
    let found = format!("hard limit {limit}, enough for {fit} nodes");
    let remedy = "raise `ulimit -Hn` (nofile in /etc/security/limits.conf, LimitNOFILE= of a systemd unit)";
    if fit < SMALLEST_CLUSTER {
        missing(WHAT, found, remedy)
    } else {
        let remedy = if fit < MAX_BOOTED_NODES.into() { remedy } else { "" };
        Check { remedy: remedy.to_owned(), ..good(WHAT, found) }
    }
}

/// The sandbox that the kernel allows, as the daemon reports it. The daemon also works without one, so nothing is
/// missing.
fn sandbox(device: Option<PathBuf>) -> Check {
    const WHAT: &str = "daemon's sandbox";
    let Some(device) = device else {
        return Check { found: "the daemon is not built yet".to_owned(), ..built(WHAT, None::<String>) };
    };
    let said = Command::new(&device).arg("sandbox").stdin(Stdio::null()).output();
    let said = said.ok().filter(|said| said.status.success());
    let Some(said) = said else {
        let found = format!("{} does not report its sandbox", device.display());
        return Check { remedy: "build niclab and niclab-device together".to_owned(), ..good(WHAT, found) };
    };
    let found = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    let is_whole = !found.contains("not (") && !found.contains("in part");
    let remedy =
        if is_whole { "" } else { "none needed: the daemon works without it; a newer kernel has it" };
    Check { remedy: remedy.to_owned(), ..good(WHAT, found) }
}

fn good(what: &str, found: String) -> Check {
    Check { what: what.to_owned(), state: State::Good, found, remedy: String::new() }
}

fn missing(what: &str, found: String, remedy: &str) -> Check {
    Check { what: what.to_owned(), state: State::Missing, found, remedy: remedy.to_owned() }
}

fn built(what: &str, found: Option<impl ToString>) -> Check {
    match found {
        Some(found) => good(what, found.to_string()),
        None => Check {
            state: State::WillBeBuilt,
            remedy: "`niclab run` builds it; the first time it needs the network".to_owned(),
            ..good(what, "not in the cache".to_owned())
        },
    }
}

fn in_path(name: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut rows = vec![["what", "state", "found", "fix"].map(str::to_owned).to_vec()];
    rows.extend(diagnosis.checks.iter().map(|check| {
        vec![check.what.clone(), check.state.word().to_owned(), check.found.clone(), check.remedy.clone()]
    }));
    table(&rows)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use niclab_cluster::programs::SourceTree;

    use super::*;

    /// A daemon that reports this about its sandbox.
    fn device(folder: &tempfile::TempDir, script: &str) -> Option<PathBuf> {
        let path = folder.path().join("device");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        Some(path)
    }

    #[test]
    fn only_a_source_tree_needs_cargo_and_builds_programs() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path()).unwrap();
        let names = |origin: &Origin| {
            let checks = checks(&survey(&cache), 0, origin);
            checks.into_iter().map(|check| check.what).collect::<Vec<_>>()
        };
        let release = Origin::Release(folder.path().to_owned());
        let tree = Origin::SourceTree(SourceTree {
            root: folder.path().to_owned(),
            target: folder.path().to_owned(),
            is_own: true,
        });
        assert!(!names(&release).contains(&"cargo".to_owned()));
        assert!(names(&tree).contains(&"cargo".to_owned()));
        assert!(own_programs(&release).state == State::Missing);
        assert!(own_programs(&tree).state == State::WillBeBuilt);
        for program in ["niclab-device", "niclab-agent", "niclab-perf", "niclab-sim"] {
            std::fs::write(folder.path().join(program), "").unwrap();
        }
        let programs = own_programs(&release);
        assert!(
            programs.state == State::Good && programs.found.contains("niclab-perf"),
            "{}",
            programs.found
        );
    }

    #[test]
    fn installation_row_names_kind_and_folder() {
        for (origin, words) in [
            (Origin::Release("/r/lib/niclab".into()), "unpacked release, /r/lib/niclab"),
            (Origin::Package("/usr/lib/niclab".into()), "Debian package, /usr/lib/niclab"),
        ] {
            let found = installation(&origin).found;
            assert!(found.contains(words) && found.contains(env!("CARGO_PKG_VERSION")), "{found}");
        }
    }

    #[test]
    fn open_files_row_says_how_many_nodes_fit() {
        let enough = open_files(524_288);
        assert!(enough.state == State::Good && enough.remedy.is_empty(), "{}", enough.found);
        assert!(enough.found.contains("enough for 64 nodes"), "{}", enough.found);
        let some = open_files(1024);
        assert!(some.state == State::Good && some.remedy.contains("ulimit -Hn"), "{}", some.found);
        let few = open_files(100);
        assert!(few.state == State::Missing && few.found.contains("enough for 0 nodes"), "{}", few.found);
    }

    #[test]
    fn sandbox_is_reported_but_never_counts_as_missing() {
        let folder = tempfile::tempdir().unwrap();
        let whole = sandbox(device(&folder, "echo 'landlock: no files; seccomp: few calls'"));
        assert_eq!(
            (whole.found.as_str(), whole.remedy.as_str()),
            ("landlock: no files; seccomp: few calls", "")
        );
        let none = sandbox(device(&folder, "echo 'not (landlock: no files): the kernel has none'"));
        assert!(none.remedy.contains("works without"), "{}", none.remedy);
        let older = sandbox(device(&folder, "exit 2"));
        assert!(older.remedy.contains("together"), "{}", older.remedy);
        let unbuilt = sandbox(None);
        assert!(unbuilt.state == State::WillBeBuilt && unbuilt.found.contains("not built"));
        assert!([whole, none, older].iter().all(|check| check.state == State::Good));
    }
}
