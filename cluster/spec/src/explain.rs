//! An error as users are told it.

use std::error::Error;

/// What went wrong with all its causes, from the outermost to the first, each said once: some of our errors quote their
/// cause, since they are also shown alone.
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
    fn each_cause_is_said_once_in_its_order() {
        let quoted = || Problem::Quoted(io::Error::other("no"));
        assert_eq!(explain(&quoted()), "cannot read it: no");
        assert_eq!(explain(&Problem::Silent(Box::new(quoted()))), "cannot do it: cannot read it: no");
    }
}
