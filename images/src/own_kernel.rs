//! A kernel of the user's own: the file that guests boot, and the tree of its build, against which drivers are built.

use std::fs;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// The built kernel's path within its tree (Linux, `arch/x86/Makefile`).
const BZIMAGE: &str = "arch/x86/boot/bzImage";

/// The path of the kernel's release within its tree.
const RELEASE: &str = "include/config/kernel.release";

/// Files that a build of modules reads, each with the command that makes it.
const OF_MODULES: [(&str, &str); 4] = [
    ("Makefile", "make defconfig"),
    (".config", "make defconfig"),
    (RELEASE, "make modules_prepare"),
    ("Module.symvers", "make"),
];

/// Header of a bzImage (Linux, `Documentation/arch/x86/boot.rst`): its magic word, and the position of the version,
/// relative to byte 0x200.
const MAGIC_AT: usize = 0x202;
const MAGIC: &[u8] = b"HdrS";
const VERSION_AT: usize = 0x20e;
const VERSION_BASE: usize = 0x200;

/// The version is in the setup code, which has at most 64 sectors.
const HEAD_BYTES: usize = 64 * 512;

/// A kernel of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnKernel {
    /// The file for `-kernel`.
    pub file: PathBuf,
    /// The folder of its build, if known.
    pub tree: Option<PathBuf>,
    /// Its release, if the file has it.
    pub release: Option<String>,
}

/// The path is not a kernel.
#[derive(Debug, Error)]
pub enum OwnKernelError {
    /// The path does not exist.
    #[error("{} is neither a kernel nor the folder in which one was built", .0.display())]
    Absent(PathBuf),
    /// The folder has no kernel.
    #[error("{} has no {BZIMAGE}; build one there (make bzImage), or give the file of a kernel", .0.display())]
    NoKernel(PathBuf),
}

/// No modules can be built against the kernel.
#[derive(Debug, Error)]
pub enum ModuleTreeError {
    /// The file's build tree is unknown.
    #[error(
        "{} is not in the tree of its build, which is needed to build a driver; give the tree (--kernel TREE), or a \
         module built for it (--driver FILE.ko)",
        .0.display()
    )]
    Unknown(PathBuf),
    /// The tree's build is incomplete.
    #[error("the kernel tree {} has no {file}, which a driver's build needs; run `{command}` there", tree.display())]
    Incomplete {
        /// The tree.
        tree: PathBuf,
        /// What is missing.
        file: &'static str,
        /// The command that makes it.
        command: &'static str,
    },
}

impl OwnKernel {
    /// The kernel at `path`: a file, or the folder of its build.
    ///
    /// # Errors
    /// [`OwnKernelError`].
    pub fn at(path: &Path) -> Result<Self, OwnKernelError> {
        let (file, tree) = if path.is_dir() {
            let file = path.join(BZIMAGE);
            if !file.is_file() {
                return Err(OwnKernelError::NoKernel(path.to_owned()));
            }
            (file, Some(path.to_owned()))
        } else if path.is_file() {
            (path.to_owned(), tree_of(path))
        } else {
            return Err(OwnKernelError::Absent(path.to_owned()));
        };
        let of_tree = tree.as_ref().and_then(|tree| fs::read_to_string(tree.join(RELEASE)).ok());
        let release = of_tree.map(|text| text.trim().to_owned()).or_else(|| release_of(&file));
        Ok(Self { file, tree, release })
    }

    /// The tree, if it is complete enough to build modules.
    ///
    /// # Errors
    /// [`ModuleTreeError`].
    pub fn module_tree(&self) -> Result<&Path, ModuleTreeError> {
        let tree = self.tree.as_deref().ok_or_else(|| ModuleTreeError::Unknown(self.file.clone()))?;
        match OF_MODULES.into_iter().find(|(file, _)| !tree.join(file).is_file()) {
            Some((file, command)) => {
                Err(ModuleTreeError::Incomplete { tree: tree.to_owned(), file, command })
            }
            None => Ok(tree),
        }
    }
}

/// The tree of a kernel that is still at its path of the build.
fn tree_of(file: &Path) -> Option<PathBuf> {
    let file = file.canonicalize().ok()?;
    let is_tree = |folder: &&Path| folder.join(".config").is_file() && folder.join("Makefile").is_file();
    file.ancestors().skip(1).take(4).find(is_tree).map(Path::to_owned)
}

/// The release in the header of a bzImage.
fn release_of(file: &Path) -> Option<String> {
    use std::io::Read as _;
    let mut head = Vec::new();
    fs::File::open(file).ok()?.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    head.get(MAGIC_AT..).filter(|rest| rest.starts_with(MAGIC))?;
    let offset: [u8; 2] = head.get(VERSION_AT..VERSION_AT + 2)?.try_into().ok()?;
    let text = head.get(VERSION_BASE + usize::from(u16::from_le_bytes(offset))..)?;
    let end = text.iter().position(|byte| matches!(byte, 0 | b' '))?;
    let release = str::from_utf8(text.get(..end)?).ok()?;
    (!release.is_empty()).then(|| release.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, name: &str, content: &[u8]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The beginning of a bzImage with this version.
    fn bzimage(version: &str) -> Vec<u8> {
        let mut head = vec![0; 0x400];
        head[MAGIC_AT..][..4].copy_from_slice(MAGIC);
        head[VERSION_AT..][..2].copy_from_slice(&0x180_u16.to_le_bytes());
        head[VERSION_BASE + 0x180..][..version.len()].copy_from_slice(version.as_bytes());
        head
    }

    #[test]
    fn kernel_file_has_a_release_but_no_tree() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("bzImage");
        fs::write(&file, bzimage("6.18.0-rc3+ (me@host) #7 SMP")).unwrap();
        let kernel = OwnKernel::at(&file).unwrap();
        assert_eq!((kernel.release.as_deref(), &kernel.tree), (Some("6.18.0-rc3+"), &None));
        assert!(matches!(kernel.module_tree(), Err(ModuleTreeError::Unknown(_))));
        // A truncated file must not cause reads beyond its end.
        for length in [0, 0x202, 0x206, 0x20f, 0x380] {
            fs::write(&file, &bzimage("6.18")[..length]).unwrap();
            assert_eq!(OwnKernel::at(&file).unwrap().release, None, "{length}");
        }
        assert!(matches!(OwnKernel::at(&folder.path().join("x")), Err(OwnKernelError::Absent(_))));
        assert!(matches!(OwnKernel::at(folder.path()), Err(OwnKernelError::NoKernel(_))));
    }

    #[test]
    fn tree_is_found_by_itself_and_by_its_kernel() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().canonicalize().unwrap();
        write(&tree, BZIMAGE, &bzimage("6.18.0"));
        for name in ["Makefile", ".config"] {
            write(&tree, name, b"");
        }
        let kernel = OwnKernel::at(&tree).unwrap();
        assert_eq!(kernel.release.as_deref(), Some("6.18.0"));
        let missing = kernel.module_tree().unwrap_err().to_string();
        assert!(missing.contains("kernel.release") && missing.contains("make modules_prepare"), "{missing}");
        write(&tree, RELEASE, b"6.18.0-mine\n");
        write(&tree, "Module.symvers", b"");
        for path in [tree.clone(), tree.join(BZIMAGE)] {
            let kernel = OwnKernel::at(&path).unwrap();
            assert_eq!(kernel.release.as_deref(), Some("6.18.0-mine"));
            assert_eq!(kernel.module_tree().unwrap(), tree);
        }
    }
}
