//! The text of an error for users.

use std::error::Error;

/// An error with all its causes, from the outermost to the innermost, each once. Some of niclab's errors quote their
/// cause, because they are also shown alone.
#[must_use]
pub fn explain(error: &(dyn Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let text = next.to_string();
        if !said.contains(&text) {
            said.push_str(": ");
            said.push_str(&text);
        }
        cause = next.source();
    }
    said
}

#[cfg(test)]
mod tests {
    use std::io;

    use thiserror::Error;

    use super::*;

    #[derive(Debug, Error)]
    enum Problem {
        #[error("cannot read it: {0}")]
        Quoted(#[source] io::Error),
        #[error("cannot do it")]
        Silent(#[source] Box<Self>),
    }

    #[test]
    fn each_cause_is_shown_once_in_order() {
        let quoted = || Problem::Quoted(io::Error::other("no"));
        assert_eq!(explain(&quoted()), "cannot read it: no");
        assert_eq!(explain(&Problem::Silent(Box::new(quoted()))), "cannot do it: cannot read it: no");
    }
}
