//! Templates in the cache that are damaged or foreign, and builders that are killed.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use niclab_harness::{Niclab, Outcome, Started, eventually, in_mount_namespace};

/// A cache with the test's own templates. The other folders are symbolic links to the default cache, where all is built
/// already.
struct Templates {
    niclab: Niclab,
    cache: PathBuf,
}

impl Templates {
    fn new() -> Self {
        let niclab = Niclab::new();
        let usual = usual_cache(&niclab);
        let cache = niclab.folder().join("cache");
        let layout = cache.join(usual.file_name().expect("a layout's name"));
        fs::create_dir_all(layout.join("template")).expect("a cache");
        for entry in fs::read_dir(&usual).expect("the usual cache").flatten() {
            let name = entry.file_name();
            if name != "template" && name != "lock" {
                symlink(entry.path(), layout.join(name)).expect("a link");
            }
        }
        Self { niclab, cache: layout }
    }

    /// The folder of all templates.
    fn all(&self) -> PathBuf {
        self.cache.join("template")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.niclab.command(arguments);
        command.env("NICLAB_CACHE", self.cache.parent().expect("the cache"));
        command
    }

    /// Starts one node, which prints whether it was restored.
    fn start(&self) -> Started {
        self.start_named("niclab")
    }

    fn start_named(&self, name: &str) -> Started {
        Started::new(self.command(&["run", "--name", name, "--nodes", "1", "--", "sh", "-c", WAY]))
    }

    /// Runs one node, which must exit with 0 and leave no unfinished template.
    #[track_caller]
    fn run(&self) -> Outcome {
        let outcome = self.start().finish().success();
        assert_eq!(self.sites(), Vec::<PathBuf>::new(), "{outcome}");
        outcome
    }

    /// The entries in the folder of templates.
    fn entries(&self) -> Vec<PathBuf> {
        let mut entries: Vec<_> =
            fs::read_dir(self.all()).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        entries.sort();
        entries
    }

    /// The folders of templates that are being built.
    fn sites(&self) -> Vec<PathBuf> {
        let is_site =
            |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"."));
        self.entries().into_iter().filter(is_site).collect()
    }

    /// The only template.
    #[track_caller]
    fn only(&self) -> PathBuf {
        let entries = self.entries();
        let [one] = entries.as_slice() else { panic!("one template and nothing else: {entries:?}") };
        one.clone()
    }
}

/// Prints in a guest whether it was restored or booted.
const WAY: &str = "dmesg | grep -q 'virtual machine fork' && echo restored || echo booted";

/// The cache that all tests share, with everything that a guest needs.
fn usual_cache(niclab: &Niclab) -> PathBuf {
    let planned = niclab.run(["plan", "--json"]);
    let planned = if planned.status.success() {
        planned
    } else {
        // No earlier test needed an image.
        niclab.run(["run", "--nodes", "1", "--", "true"]).success();
        niclab.run(["plan", "--json"]).success()
    };
    let plan = planned.json();
    let template = plan["nodes"][0]["restore"]["template"].as_str().expect("a template's folder");
    Path::new(template).ancestors().nth(2).expect("a cache").to_owned()
}

fn makes(outcome: &Outcome) -> usize {
    outcome.stderr.matches("template of a booted guest: done").count()
}

#[track_caller]
fn assert_restored(outcome: &Outcome, made: usize) {
    assert!(outcome.stdout.contains("| restored") && makes(outcome) == made, "{made} made\n{outcome}");
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status().expect("cp starts");
    assert!(copied.success());
}

/// Inverts the byte in the middle of a file.
fn flip(file: &Path) {
    let file = fs::File::options().read(true).write(true).open(file).expect("a file");
    let at = file.metadata().expect("its size").len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[!byte[0]], at).expect("a byte");
}

#[test]
fn concurrent_runs_build_one_template_after_a_killed_builder() {
    let templates = Templates::new();
    // The builder is killed during the build. Its folder stays until the next build, and no process continues to run.
    let run = templates.start();
    assert!(eventually(|| templates.sites().iter().any(|site| site.join("console").exists())));
    run.signal(libc::SIGKILL);
    drop(run);
    let is_quiet = || templates.niclab.processes().is_empty();
    assert!(eventually(is_quiet), "{:#?}", templates.niclab.processes());
    assert!(templates.sites().len() == templates.entries().len(), "{:?}", templates.entries());

    let [one, other] = ["one", "other"].map(|name| templates.start_named(name));
    let [one, other] = [one, other].map(|run| run.finish().success());
    assert_eq!(makes(&one) + makes(&other), 1, "{one}\n{other}");
    assert!(one.stdout.contains("restored") && other.stdout.contains("restored"), "{one}\n{other}");
    templates.only();
}

type Harm = fn(&Path);

/// Damages to a template's folder, and the message about each.
const HARMS: [(&str, Harm); 6] = [
    ("its file memory is damaged", |folder| {
        let memory = fs::File::options().write(true).open(folder.join("memory")).expect("the memory");
        memory.set_len(1 << 20).expect("a shorter file");
    }),
    ("its file state is damaged", |folder| fs::write(folder.join("state"), "").expect("an empty state")),
    ("it has version 2", |folder| {
        let text = fs::read_to_string(folder.join("template.json")).expect("the list");
        let raised = text.replacen("\"version\":1", "\"version\":2", 1);
        assert_ne!(raised, text);
        fs::write(folder.join("template.json"), raised).expect("another version");
    }),
    ("others can write", |folder| {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o770)).expect("other modes");
    }),
    ("cannot be trusted", |folder| {
        let elsewhere = folder.with_file_name("elsewhere");
        fs::rename(folder, &elsewhere).expect("another name");
        symlink(&elsewhere, folder).expect("a link");
    }),
    // The test lets the rebuild after the last damage finish.
    ("its file memory is damaged", |folder| flip(&folder.join("memory"))),
];

#[test]
fn damaged_or_foreign_template_is_named_and_rebuilt() {
    let templates = Templates::new();
    assert_restored(&templates.run(), 1);
    assert_restored(&templates.run(), 0);
    let (folder, whole) = (templates.only(), templates.niclab.folder().join("whole"));
    copy(&folder, &whole);

    // Only root can make a folder of another user.
    // SAFETY: it has no effect on memory.
    let is_root = unsafe { libc::geteuid() } == 0;
    let foreign: Harm = |folder| chown(folder, Some(1), Some(1)).expect("another owner");
    if !is_root {
        eprintln!("skipped: a template of another user, because only root can make one");
    }
    let harms = is_root.then_some(("cannot be trusted", foreign));
    let mut harms: Vec<_> = harms.into_iter().chain(HARMS).collect();
    let last = harms.pop().expect("a harm");
    for (words, harm) in harms {
        harm(&folder);
        let mut run = templates.start();
        let said = run.wait_for_line("is rebuilt");
        assert!(said.contains(words), "{words}: {said}");
        // The rebuild has begun; only the last one runs to its end.
        run.wait_for_line("template of a booted guest");
        run.signal(libc::SIGINT);
        drop(run);
        assert!(eventually(|| templates.niclab.processes().is_empty()));
        assert!(
            fs::symlink_metadata(&folder).is_err(),
            "{words}: the damaged template is removed before the build"
        );
        for entry in templates.entries() {
            fs::remove_dir_all(entry).expect("an empty folder");
        }
        copy(&whole, &folder);
    }
    let (words, harm) = last;
    let inode = fs::metadata(folder.join("memory")).expect("the memory").ino();
    harm(&folder);
    let outcome = templates.run();
    assert!(outcome.stderr.contains("is rebuilt") && outcome.stderr.contains(words), "{outcome}");
    assert_restored(&outcome, 1);
    assert_ne!(fs::metadata(templates.only().join("memory")).expect("the memory").ino(), inode);
    assert_restored(&templates.run(), 0);
}

/// A file system without room for a template is mounted over the folder of templates, in a separate mount namespace.
#[test]
fn without_room_for_a_template_the_nodes_boot() {
    let templates = Templates::new();
    let script = r#"mount -t tmpfs -o size=40m,mode=700 tmpfs "$1" || exit 99; all=$1; shift
        "$@" || exit; ls -A "$all" | sed 's/^/left: /'"#;
    let run = templates.command(&["run", "--nodes", "1", "--", "sh", "-c", WAY]);
    let unshare = in_mount_namespace(script, &templates.all(), &run);
    let outcome = Started::new(unshare).finish().success();
    let said: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| line.contains("the nodes boot, because the template cannot be built"))
        .collect();
    assert!(said.len() == 1 && said[0].contains("No space left"), "{outcome}");
    assert!(outcome.stdout.contains("| booted") && !outcome.stdout.contains("left: "), "{outcome}");
}
