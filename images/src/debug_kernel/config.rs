//! The configuration of a debug kernel.

use super::DebugTool;

/// What every such kernel has.
pub(super) const BASE: &str = include_str!("../../kernel/base.config");

/// All that is asked for.
pub(super) fn wanted(tools: &[DebugTool]) -> String {
    tools.iter().fold(BASE.to_owned(), |text, tool| format!("{text}\n{}", tool.config()))
}

/// Lines of `wanted` that do not hold in `config`: the kernel's own tool drops what depends on something that is off,
/// and says nothing. A kernel whose tool was dropped so would see nothing, for ever.
pub(super) fn dropped<'a>(wanted: &'a str, config: &str) -> Vec<&'a str> {
    let options = wanted.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let holds = |line: &&str| match line.split_once('=') {
        Some((option, "n")) => {
            let set = format!("{option}=");
            !config.lines().any(|line| line.starts_with(&set))
        }
        _ => config.lines().any(|found| found == *line),
    };
    options.filter(|line| !holds(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dropped_or_set_unasked_is_named() {
        let wanted = "# words\nCONFIG_A=y\nCONFIG_B=n\n\nCONFIG_C=\"x\"\n";
        assert!(dropped(wanted, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=\"x\"\n").is_empty());
        let lost = dropped(wanted, "# CONFIG_A is not set\nCONFIG_B=m\nCONFIG_C=\"y\"\n");
        assert_eq!(lost, ["CONFIG_A=y", "CONFIG_B=n", "CONFIG_C=\"x\""]);
        assert_eq!(dropped("CONFIG_A=y", "CONFIG_AB=y"), ["CONFIG_A=y"]);
    }

    #[test]
    fn no_option_is_said_twice() {
        let text = wanted(&DebugTool::USUAL);
        let mut options: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.split_once('=')?.0))
            .collect();
        options.sort_unstable();
        let count = options.len();
        options.dedup();
        assert_eq!(options.len(), count);
    }
}
