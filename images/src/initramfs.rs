//! The default guest: a small initramfs with busybox, the C and C++ runtime, modules, and niclab's own programs.
//!
//! It is not compressed: an emulated guest decompresses slower than QEMU copies.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache::{Cache, CacheLock, Key, KeyBuilder};
use crate::command::{library_dir, output};
use crate::cpio::Archive;
use crate::error::{At, ImageError};
use crate::kernel::{ModuleIndex, flat_file};
use crate::module::MODULE;
use crate::tree::Tree;
use crate::unpack::MERGED;

/// Change it if the code below builds something else. (The guest's scripts are hashed, too.)
const RECIPE: &str = "initramfs 5";

pub(crate) const KIND: &str = "initramfs";

/// The file in the artefact.
pub(crate) const FILE: &str = "initramfs.cpio";

/// Number of initramfs to keep. Each change of a guest tool makes a new one.
pub(crate) const KEPT: usize = 8;

/// Modules that every guest loads, for networks and the shared folder; and the stock driver of the card for comparisons
/// in benchmarks.
const MODULES: [&str; 4] = ["virtio_net", "9pnet_virtio", "9p", "tulip"];

/// Modules for disks and their file systems. They are a quarter of the initramfs, and without a disk they would only
/// use memory.
const DISK_MODULES: [&str; 6] = ["virtio_blk", "crc32c_generic", "overlay", "erofs", "squashfs", "ext4"];

/// The end of a signed module (Linux, include/linux/module_signature.h).
const SIGNATURE_MAGIC: &[u8] = b"~Module signature appended~\n";

/// Bytes of the `struct module_signature` before it.
const SIGNATURE_ABOUT_BYTES: usize = 12;

/// Libraries that a program from the host is likely to need.
const LIBRARIES: [&str; 12] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libanl.so.1",
    "libnss_files.so.2",
    "libgcc_s.so.1",
    "libatomic.so.1",
    "libstdc++.so.6",
];

/// The guest's own scripts and settings: path, mode, content.
const GUEST_FILES: [(&str, u32, &str); 8] = [
    ("init", 0o755, include_str!("../guest/init")),
    ("usr/lib/niclab/node", 0o755, include_str!("../guest/node")),
    ("usr/lib/niclab/agent", 0o755, include_str!("../guest/agent")),
    ("etc/inittab", 0o644, include_str!("../guest/inittab")),
    ("etc/passwd", 0o644, "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
    ("etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/profile", 0o644, "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\n"),
];

/// Programs of match units, for the kernel's firmware loader: path, content.
const FIRMWARE: [(&str, &[u8]); 1] =
    [("usr/lib/firmware/niclab/portals.nmi", include_bytes!("../../firmware/matching/programs/portals.nmi"))];

/// The inputs of an initramfs.
pub(crate) struct Inputs<'a> {
    pub tree: &'a Tree,
    /// The built module.
    pub module: &'a Path,
    /// Key of the built module.
    pub module_key: &'a Key,
    /// Static programs for `/usr/bin`.
    pub tools: &'a [PathBuf],
    /// Whether the guest may have disks.
    pub has_disks: bool,
}

impl Inputs<'_> {
    pub fn key(&self) -> Result<Key, ImageError> {
        let mut key =
            KeyBuilder::new(RECIPE).text(&self.tree.id.to_string()).text(&self.module_key.to_string());
        key = key.text(if self.has_disks { "disks" } else { "no disks" });
        for (path, mode, content) in GUEST_FILES {
            key = key.text(path).text(&mode.to_string()).text(content);
        }
        for (path, content) in FIRMWARE {
            key = key.text(path).bytes(content);
        }
        for tool in self.tools {
            key = key.text(tool_name(tool)?).file(tool)?;
        }
        Ok(key.finish())
    }
}

/// The initramfs, built if needed.
pub(crate) fn ensure(cache: &Cache, lock: &CacheLock, inputs: &Inputs<'_>) -> Result<PathBuf, ImageError> {
    let key = inputs.key()?;
    let folder = cache.artefact(lock, KIND, &key, |staging| {
        let path = staging.join(FILE);
        let file = fs::File::create(&path).at("create", &path)?;
        let mut archive = Archive::new(BufWriter::new(file));
        base(&mut archive, inputs.tree)?;
        libraries(&mut archive, inputs.tree)?;
        modules(&mut archive, inputs)?;
        for tool in inputs.tools {
            let name = tool_name(tool)?;
            add(&mut archive, &format!("usr/lib/niclab/bin/{name}"), 0o755, tool)?;
            let link = format!("usr/bin/{name}");
            archive.symlink(&link, &format!("/usr/lib/niclab/bin/{name}")).at("write", &path)?;
        }
        archive.finish().map(drop).at("write", &path)
    })?;
    Ok(folder.join(FILE))
}

/// A tool's name in the guest.
fn tool_name(tool: &Path) -> Result<&str, ImageError> {
    tool.file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| ImageError::BadTool { path: tool.to_owned() })
}

type File = Archive<BufWriter<fs::File>>;

/// Copies a file of the host into the archive.
fn add(archive: &mut File, name: &str, mode: u32, from: &Path) -> Result<(), ImageError> {
    let data = fs::read(from).at("read", from)?;
    archive.file(name, mode, &data).at("copy into the initramfs", from)
}

/// Folders, links, busybox and scripts.
fn base(archive: &mut File, tree: &Tree) -> Result<(), ImageError> {
    let list = output(Command::new(tree.busybox()).arg("--list"), "asking busybox what it has")?;
    let applets = String::from_utf8_lossy(&list).into_owned();
    let mut write = || -> io::Result<()> {
        for folder in ["usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "dev", "proc", "sys", "run", "mnt"] {
            archive.directory(folder, 0o755)?;
        }
        archive.directory("tmp", 0o1777)?;
        archive.directory("root", 0o700)?;
        for folder in MERGED {
            archive.symlink(folder, &format!("usr/{folder}"))?;
        }
        // The kernel opens it for the first program, before any mount.
        archive.character_device("dev/console", 0o600, 5, 1)?;
        archive.character_device("dev/null", 0o666, 1, 3)?;
        for applet in applets.lines().filter(|name| *name != "busybox") {
            archive.symlink(&format!("usr/bin/{applet}"), "/usr/lib/niclab/busybox")?;
        }
        archive.symlink("usr/bin/busybox", "/usr/lib/niclab/busybox")?;
        for (path, mode, content) in GUEST_FILES {
            archive.file(path, mode, content.as_bytes())?;
        }
        for (path, content) in FIRMWARE {
            archive.file(path, 0o644, content)?;
        }
        Ok(())
    };
    write().at("write", Path::new(FILE))?;
    add(archive, "usr/lib/niclab/busybox", 0o755, &tree.busybox())
}

fn libraries(archive: &mut File, tree: &Tree) -> Result<(), ImageError> {
    let folder = library_dir(&tree.path);
    let loader = "ld-linux-x86-64.so.2";
    let mut seen = BTreeSet::new();
    for name in LIBRARIES.iter().chain([&loader]) {
        // Follows the links of versioned libraries; the copy has the name that programs use.
        let from = folder.join(name);
        if from.exists() && seen.insert(name) {
            add(archive, &format!("usr/lib/x86_64-linux-gnu/{name}"), 0o755, &from)?;
        }
    }
    let path = "usr/lib64/ld-linux-x86-64.so.2";
    archive.symlink(path, "../lib/x86_64-linux-gnu/ld-linux-x86-64.so.2").at("write", Path::new(path))
}

/// The kernel's modules, decompressed and in one folder, with the list of dependencies for `modprobe`.
fn modules(archive: &mut File, inputs: &Inputs<'_>) -> Result<(), ImageError> {
    let source = inputs.tree.modules();
    let index = ModuleIndex::read(&source)?;
    let disks = if inputs.has_disks { DISK_MODULES.as_slice() } else { &[] };
    let files = index.closure(&[&MODULES, disks].concat())?;
    let target = format!("usr/lib/modules/{}", inputs.tree.kernel_release);
    for file in &files {
        let data = decompressed(inputs.tree, &source.join(file))?;
        archive
            .file(&format!("{target}/{}", flat_file(file)), 0o644, without_signature(&data))
            .at("write", Path::new(FILE))?;
    }
    add(archive, &format!("{target}/{MODULE}"), 0o644, inputs.module)?;
    let dependencies = format!("{}{MODULE}:\n", index.flat_dependencies(&files));
    let path = format!("{target}/modules.dep");
    archive.file(&path, 0o644, dependencies.as_bytes()).at("write", Path::new(FILE))
}

/// Decompresses a module; Debian's are compressed with xz.
fn decompressed(tree: &Tree, path: &Path) -> Result<Vec<u8>, ImageError> {
    if path.extension().is_some_and(|e| e == "xz") {
        let mut command = Command::new(tree.busybox());
        command.arg("xzcat").arg(path).stdin(Stdio::null());
        return output(&mut command, "decompressing a kernel module");
    }
    fs::read(path).at("read", path)
}

/// A module without its signature. To check a signature, an emulated guest would hash the module and compute with long
/// numbers, which makes the boot measurably longer. The kernel also loads modules without a signature, such as niclab's
/// own; a kernel that refused them could not have a NIC.
fn without_signature(module: &[u8]) -> &[u8] {
    let Some(rest) = module.strip_suffix(SIGNATURE_MAGIC) else { return module };
    // Before the magic words: `struct module_signature`, whose last four bytes are the signature's length.
    let Some((rest, about)) = rest.split_last_chunk::<SIGNATURE_ABOUT_BYTES>() else { return module };
    let length = about.last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes) as usize);
    rest.len().checked_sub(length).and_then(|end| rest.get(..end)).unwrap_or(module)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cpio::reader;
    use crate::progress::Silent;

    const RELEASE: &str = "6.12-test";

    /// A tree with only the inputs of an initramfs; its busybox is a script.
    fn tree(path: &Path) -> Tree {
        let modules = path.join("usr/lib/modules").join(RELEASE);
        for folder in [modules.clone(), path.join("usr/bin"), library_dir(path)] {
            fs::create_dir_all(folder).unwrap();
        }
        let busybox = path.join("usr/bin/busybox");
        fs::write(&busybox, "#!/bin/sh\nprintf 'busybox\\nls\\nsh\\n'\n").unwrap();
        fs::set_permissions(&busybox, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(library_dir(path).join("libc.so.6"), "libc").unwrap();
        let mut dependencies = String::from("a/need.ko:\n");
        for name in MODULES.iter().chain(&DISK_MODULES) {
            dependencies += &format!("a/{name}.ko: a/need.ko\n");
            fs::create_dir_all(modules.join("a")).unwrap();
            fs::write(modules.join(format!("a/{name}.ko")), name).unwrap();
        }
        fs::write(modules.join("a/need.ko"), "need").unwrap();
        fs::write(modules.join("modules.dep"), dependencies).unwrap();
        fs::write(modules.join("modules.builtin"), "").unwrap();
        Tree {
            path: path.to_owned(),
            id: KeyBuilder::new("test").finish(),
            kernel_release: RELEASE.into(),
            qemu_version: "11.1".into(),
            make_args: &[],
        }
    }

    #[test]
    fn initramfs_is_complete_and_rebuilt_for_a_changed_tool() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(&dir.path().join("tree"));
        let (module, tool) = (dir.path().join("niclab.ko"), dir.path().join("niclab-agent"));
        fs::write(&module, "module").unwrap();
        fs::write(&tool, "first").unwrap();
        let cache = Cache::at(&dir.path().join("cache")).unwrap();
        let lock = cache.lock(&Silent).unwrap();
        let tools = [tool.clone()];
        let inputs = Inputs {
            tree: &tree,
            module: &module,
            module_key: &tree.id.clone(),
            tools: &tools,
            has_disks: true,
        };

        let first = ensure(&cache, &lock, &inputs).unwrap();
        let members = reader::read(&fs::read(&first).unwrap());
        let content = |name: &str| {
            members.iter().find(|(n, ..)| n == name).map(|(_, mode, data)| (*mode, data.as_slice()))
        };
        assert_eq!(content("usr/lib/niclab/bin/niclab-agent"), Some((0o100_755, b"first".as_slice())));
        let firmware = content("usr/lib/firmware/niclab/portals.nmi");
        assert!(firmware.is_some_and(|(mode, data)| mode == 0o100_644 && data.starts_with(b"nicmatch")));
        assert_eq!(content("usr/bin/ls"), Some((0o120_777, b"/usr/lib/niclab/busybox".as_slice())));
        assert!(
            content("init").is_some_and(|(mode, data)| mode == 0o100_755 && data.starts_with(b"#!/bin/sh"))
        );
        let dependencies = content(&format!("usr/lib/modules/{RELEASE}/modules.dep")).unwrap().1;
        assert!(dependencies.starts_with(b"need.ko:\nvirtio_net.ko: need.ko\n"));
        assert!(dependencies.ends_with(b"niclab.ko:\n"));
        assert_eq!(content("usr/lib/x86_64-linux-gnu/libc.so.6").unwrap().1, b"libc");

        assert_eq!(ensure(&cache, &lock, &inputs).unwrap(), first);
        fs::write(&tool, "second").unwrap();
        assert_ne!(ensure(&cache, &lock, &inputs).unwrap(), first);
    }

    #[test]
    fn disk_modules_are_included_only_for_disks() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(&dir.path().join("tree"));
        let module = dir.path().join("niclab.ko");
        fs::write(&module, "module").unwrap();
        let cache = Cache::at(&dir.path().join("cache")).unwrap();
        let lock = cache.lock(&Silent).unwrap();
        let modules = |has_disks| {
            let inputs = Inputs { tree: &tree, module: &module, module_key: &tree.id, tools: &[], has_disks };
            let members = reader::read(&fs::read(ensure(&cache, &lock, &inputs).unwrap()).unwrap());
            let folder = format!("usr/lib/modules/{RELEASE}/");
            let files = members.into_iter().filter_map(|(name, _, data)| {
                Some((name.strip_prefix(&folder)?.to_owned(), String::from_utf8(data).unwrap()))
            });
            files.collect::<std::collections::BTreeMap<_, _>>()
        };
        for has_disks in [true, false] {
            let modules = modules(has_disks);
            // The list has exactly the existing files.
            let listed: BTreeSet<_> = modules["modules.dep"]
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(file, _)| file)
                .collect();
            let there: BTreeSet<_> =
                modules.keys().map(String::as_str).filter(|file| *file != "modules.dep").collect();
            assert_eq!(listed, there);
            assert!(there.contains("9p.ko") && there.contains("need.ko") && there.contains("niclab.ko"));
            for name in DISK_MODULES {
                assert_eq!(there.contains(format!("{name}.ko").as_str()), has_disks, "{name}");
            }
        }
    }

    #[test]
    fn only_the_signature_is_removed() {
        let signed = |signature: &[u8], length: u32| {
            [b"module", signature, &[0; 8], &length.to_be_bytes(), SIGNATURE_MAGIC].concat()
        };
        assert_eq!(without_signature(&signed(b"signature", 9)), b"module");
        assert_eq!(without_signature(b"module"), b"module");
        assert_eq!(without_signature(SIGNATURE_MAGIC), SIGNATURE_MAGIC);
        let longer_than_all = signed(b"signature", 16);
        assert_eq!(without_signature(&longer_than_all), longer_than_all);
    }
}
