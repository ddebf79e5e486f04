use std::io::Read as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use super::*;

fn write(path: &Path, inputs: &[&Path], content: &str) -> Result<(), OutputError> {
    OutputFile::create(path, inputs)?.write(content.as_bytes())
}

fn fifo(folder: &Path) -> PathBuf {
    let path = folder.join("fifo");
    rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

#[test]
fn regular_file_is_replaced_and_keeps_its_permissions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.nmi");
    write(&path, &[], "one").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    write(&path, &[], "two").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    // The link stays; its target is replaced.
    let link = folder.path().join("link.nmi");
    symlink("a.nmi", &link).unwrap();
    write(&link, &[], "three").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "three");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn unfinished_output_changes_nothing_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("r.json");
    fs::write(&path, "earlier").unwrap();
    for name in ["r.json", "new.json"] {
        let output = OutputFile::create(&folder.path().join(name), &[]).unwrap();
        output.writer().unwrap().write_all(b"half").unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn new_file_has_the_permissions_of_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("a"), folder.path().join("b"));
    write(&path, &[], "one").unwrap();
    fs::write(&other, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path), mode(&other));
}

#[test]
fn input_is_not_written_by_any_of_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("s.nma");
    fs::write(&source, "nop").unwrap();
    let (soft, hard) = (folder.path().join("soft"), folder.path().join("hard"));
    symlink("s.nma", &soft).unwrap();
    fs::hard_link(&source, &hard).unwrap();
    let dotted = folder.path().join("./s.nma");
    for name in [&source, &dotted, &soft, &hard] {
        let error = write(name, &[Path::new("/none"), &source], "gone").unwrap_err();
        assert!(matches!(error, OutputError::Input { .. }), "{error}");
        assert!(error.to_string().contains("s.nma are the same file"), "{error}");
    }
    assert_eq!(fs::read_to_string(&source).unwrap(), "nop");
}

#[test]
fn device_and_fifo_are_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let (null, pipe) = (folder.path().join("null"), fifo(folder.path()));
    symlink("/dev/null", &null).unwrap();
    let reader = {
        let pipe = pipe.clone();
        thread::spawn(move || fs::read_to_string(pipe).unwrap())
    };
    for path in [&null, &pipe] {
        let output = OutputFile::create(path, &[]).unwrap();
        assert!(output.is_stream());
        output.write(b"frames").unwrap();
    }
    assert_eq!(reader.join().unwrap(), "frames");
    assert!(fs::symlink_metadata(&null).unwrap().is_symlink());
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn reader_that_leaves_a_fifo_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = fifo(folder.path());
    let open = |pipe: PathBuf| thread::spawn(move || File::open(pipe).unwrap());
    let reader = open(pipe.clone());
    let output = OutputFile::create(&pipe, &[]).unwrap();
    let mut writer = output.writer().unwrap();
    let mut reader = reader.join().unwrap();
    writer.write_all(b"ab").unwrap();
    reader.read_exact(&mut [0; 2]).unwrap();
    assert!(!output.reader_is_gone());
    let (other, _peer) = UnixStream::pair().unwrap();
    drop(reader);
    assert!(writer.wait_until_unread(&other).unwrap() && output.reader_is_gone());
    let error = output.fail(writer.write_all(b"c").unwrap_err());
    assert!(matches!(error, OutputError::ReaderGone(_)), "{error}");
}

#[test]
fn waiting_for_the_reader_ends_when_the_other_side_hangs_up() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = fifo(folder.path());
    let reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let output = OutputFile::create(&pipe, &[]).unwrap();
    let (other, peer) = UnixStream::pair().unwrap();
    drop(peer);
    assert!(!output.writer().unwrap().wait_until_unread(&other).unwrap());
    assert!(!output.reader_is_gone());
    drop(reader);
}

#[test]
fn other_special_files_and_missing_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for path in [&socket, folder.path()] {
        let error = write(path, &[], "gone").unwrap_err();
        assert!(matches!(error, OutputError::Special(_)), "{error}");
    }
    let dangling = folder.path().join("dangling");
    symlink("nowhere", &dangling).unwrap();
    for path in [&dangling, &folder.path().join("no/folder"), &socket.join("below")] {
        let error = write(path, &[], "gone").unwrap_err();
        assert!(matches!(error, OutputError::Write { .. }), "{error}");
        assert!(error.to_string().contains("its folder exists"), "{error}");
    }
}

#[test]
fn path_that_became_an_input_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (late, source) = (folder.path().join("late"), folder.path().join("source"));
    fs::write(&source, "nop").unwrap();
    let output = OutputFile::create(&late, &[&source]).unwrap();
    fs::hard_link(&source, &late).unwrap();
    assert!(matches!(output.finish(), Err(OutputError::Input { .. })));
    assert_eq!(fs::read_to_string(&source).unwrap(), "nop");
}

#[test]
fn dash_is_standard_output_if_the_command_allows_it() {
    let error = OutputFile::create(Path::new("-"), &[]).unwrap_err();
    assert!(matches!(error, OutputError::Stdout(_)) && error.to_string().contains("`./-`"), "{error}");
    let output = OutputFile::create_with(Path::new("-"), &[], Stdout::Allowed).unwrap();
    assert!(output.is_stream());
    output.finish().unwrap();
    assert!(!Path::new("-").exists());
}

#[test]
fn all_outputs_that_cannot_be_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad, worse) = (folder.path().join("a"), folder.path().join("x/b"), folder.path().join("y/c"));
    let pipe = fifo(folder.path());
    // The FIFO has no reader, so opening it would block forever.
    let paths = [Some(pipe.as_path()), Some(&good), None, Some(&bad), Some(&worse)];
    let error = create_all(paths, &[], Stdout::Taken).unwrap_err().to_string();
    assert!(error.contains("x/b: ") && error.contains("y/c: "), "{error}");
    let again = folder.path().join("./a");
    let error = create_all([Some(&good), Some(&again)], &[], Stdout::Taken).unwrap_err().to_string();
    assert!(error.contains("named for two outputs"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let [file, none] = create_all([Some(&good), None], &[], Stdout::Taken).unwrap();
    assert!(file.is_some() && none.is_none());
    create_all([Some(Path::new("/dev/null")); 2], &[], Stdout::Taken).unwrap();
}

#[test]
fn probe_opens_nothing_and_gives_the_path_without_links() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("null");
    symlink("/dev/null", &link).unwrap();
    let probe = |path: &Path| probe_all([Some(path)], &[], Stdout::Taken).map(|[path]| path.unwrap());
    assert_eq!(probe(&link).unwrap(), Path::new("/dev/null"));
    // Opening it would wait for a reader.
    let pipe = fifo(folder.path());
    assert_eq!(probe(&pipe).unwrap(), pipe);
    let new = folder.path().join("new");
    assert_eq!(probe(&new).unwrap(), new);
    assert!(probe(&folder.path().join("no/new")).is_err());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
