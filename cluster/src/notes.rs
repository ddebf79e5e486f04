//! For tests: keeps the notes of a build.

use std::{sync::Mutex, time::Duration};

use niclab_images::Progress;

/// Records notes, and nothing else of the progress.
#[derive(Default)]
pub struct Notes(pub Mutex<Vec<String>>);

impl Progress for Notes {
    fn started(&self, _: &str) {}
    fn detail(&self, _: &str, _: &str) {}
    fn done(&self, _: &str, _: Duration) {}
    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}
