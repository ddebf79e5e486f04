//! Observation over a monitor connection. The connection's thread writes; another thread waits until the client hangs
//! up.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use niclab_spec::monitor::Answer;
use niclab_spec::watch::{ChunkWriter, WatchRequest};

use crate::shell::{Shell, observers};
use crate::watch::{Watch, write};

/// Ends the watch when it is dropped.
struct Watching<'a> {
    shell: &'a Shell,
    watch: Arc<Watch>,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        observers::end(self.shell, &self.watch);
        self.shell.watchers().leave();
    }
}

/// Answers a watch request, which takes the rest of the connection.
///
/// # Errors
/// If the connection breaks.
pub fn serve(shell: &Shell, request: &WatchRequest, stream: &UnixStream) -> io::Result<()> {
    let mut out = stream;
    let watch = match observers::begin(shell, request) {
        Ok(watch) => watch,
        Err(error) => return answer(&mut out, &Answer::Error { message: error.to_string() }),
    };
    shell.watchers().enter();
    let watching = Watching { shell, watch };
    answer(&mut out, &Answer::Watching)?;
    // There is no time limit: the client shuts its side down when it has seen enough.
    stream.set_read_timeout(None)?;
    let summary = thread::scope(|scope| {
        let waiting = thread::Builder::new().name("watch-end".to_owned());
        let waiting = waiting.spawn_scoped(scope, || {
            wait_for_end(stream);
            observers::end(shell, &watching.watch);
        });
        let names: Vec<String> = shell.nodes().iter().map(|info| info.name.clone()).collect();
        let result = waiting.and_then(|_| {
            let (chunks, summary) = write::write(&watching.watch, &names, ChunkWriter::new(out))?;
            chunks.end()?;
            Ok(summary)
        });
        // Wakes the waiting thread. This fails only if the other end has hung up, and then the thread wakes by
        // itself.
        let _ = stream.shutdown(Shutdown::Read);
        result
    })?;
    answer(&mut out, &Answer::Watched(summary))
}

fn answer(out: &mut &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    out.write_all(&text)
}

/// Returns when the other end has shut its side down or hung up. The daemon ignores what it sends until then.
fn wait_for_end(mut stream: &UnixStream) {
    let mut discarded = [0; 64];
    while matches!(stream.read(&mut discarded), Ok(1..)) {}
}
