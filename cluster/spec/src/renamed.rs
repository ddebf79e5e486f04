//! Names of the previous version.
//!
//! niclab still reads them in cluster files, options and reports, for one version. If a user's file or command has an
//! old name, a warning gives the new one.

/// Keys of cluster files and of counts in reports: the old name and the new one.
pub const KEYS: [(&str, &str); 7] = [
    ("unkind", "adversarial"),
    ("doubled", "duplicated"),
    ("doubled_interrupt", "duplicated_interrupt"),
    ("doubled_interrupt_at", "duplicated_interrupt_at"),
    ("kernel_watchers", "kernel_debug_tools"),
    ("unkind_reseeds", "adversarial_reseeds"),
    ("unkind_seed", "adversarial_seed"),
];

/// Counts of nodes in reports: the old name and the new one.
const COUNTS: [(&str, &str); 3] =
    [("message_series", "batched"), ("lent", "borrowed"), ("ethernet_series", "ethernet_batched")];

/// Options of commands: the old name and the new one.
pub const OPTIONS: [(&str, &str); 3] = [
    ("--unkind", "--adversarial"),
    ("--undecided-is-broken", "--fail-on-undecided"),
    ("--wall-is-not-judged", "--ignore-wall-ratios"),
];

/// Values of options and keys: the old name and the new one.
pub const VALUES: [(&str, &str); 3] =
    [("unkind", "adversarial"), ("doubled-interrupt", "duplicated-interrupt"), ("watching", "debug")];

/// `name`, or its new name if it is an old one in `names`. Use of an old name is logged.
#[must_use]
pub fn new_name<'a>(names: &[(&str, &'a str)], name: &'a str) -> &'a str {
    match names.iter().find(|(old, _)| *old == name) {
        None => name,
        Some((_, new)) => {
            warning(names, name).iter().for_each(|text| log::warn!("{text}"));
            new
        }
    }
}

/// The warning about an old name, if `name` is one in `names`.
#[must_use]
pub fn warning(names: &[(&str, &str)], name: &str) -> Option<String> {
    let (old, new) = names.iter().find(|(old, _)| *old == name)?;
    Some(format!("`{old}` is now called `{new}`; the next version of niclab will not know the old name"))
}

/// Counts of an earlier report under their new names.
pub(crate) fn rename_counts(counts: &mut std::collections::BTreeMap<String, u64>) {
    for (old, new) in KEYS.into_iter().chain(COUNTS) {
        if let Some(count) = counts.remove(old) {
            counts.insert(new.to_owned(), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_are_reported_with_the_new_ones() {
        let text = warning(&OPTIONS, "--unkind").unwrap();
        assert!(text.contains("`--unkind` is now called `--adversarial`"), "{text}");
        assert_eq!(warning(&OPTIONS, "--adversarial"), None);
    }
}
