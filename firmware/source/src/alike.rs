//! Similar names.

/// Max bytes of a name to compare: the comparison takes quadratic time.
const MAX_ALIKE: usize = 64;

/// The candidate that a misspelt name most likely means.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let is_short = |name: &str| name.len() <= MAX_ALIKE;
    let scored = candidates
        .filter(|candidate| is_short(name) && is_short(candidate))
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate));
    scored
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_not_compared() {
        let long = "x".repeat(MAX_ALIKE + 1);
        assert_eq!(nearest(&long, [long.as_str()].into_iter()), None);
        assert_eq!(nearest("again", [long.as_str(), "agian"].into_iter()), Some("agian"));
    }
}
