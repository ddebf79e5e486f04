//! The configuration of a debug kernel.

use super::DebugTool;

/// The options of every debug kernel.
pub(super) const BASE: &str = include_str!("../../kernel/base.config");

/// All requested options.
pub(super) fn wanted(tools: &[DebugTool]) -> String {
    tools.iter().fold(BASE.to_owned(), |text, tool| format!("{text}\n{}", tool.config()))
}

/// Lines of `wanted` that are missing in `config`. The kernel's tool silently drops an option whose dependency is off;
/// a debugging tool without its option would never find anything.
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
    fn dropped_and_changed_options_are_named() {
        let wanted = "# words\nCONFIG_A=y\nCONFIG_B=n\n\nCONFIG_C=\"x\"\n";
        assert!(dropped(wanted, "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=\"x\"\n").is_empty());
        let lost = dropped(wanted, "# CONFIG_A is not set\nCONFIG_B=m\nCONFIG_C=\"y\"\n");
        assert_eq!(lost, ["CONFIG_A=y", "CONFIG_B=n", "CONFIG_C=\"x\""]);
        assert_eq!(dropped("CONFIG_A=y", "CONFIG_AB=y"), ["CONFIG_A=y"]);
    }

    #[test]
    fn no_option_is_set_twice() {
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
