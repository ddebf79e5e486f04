//! Compares every number that the papers print with the models': the page docs/reference/VALIDATION.md.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use niclab_output::{OutputErrors, OutputFile};
use niclab_spec::NicModel;
use serde::Serialize;

use crate::figures::{
    Made, PaperFigures,
    compared::{self, Compared, Provenance, Verdict},
    plot,
};

const ABOUT: &str = "\
# Validation

The numbers that the five papers print, next to those of niclab's models. All times are model time. `niclab validation
--into docs/reference` writes this page and the figures; a test compares them byte for byte.

The column `ours is` has the origin of the model's number:

* *emergent*: from the mechanism, and from constants that a source gives;
* *fitted*: a constant was chosen to reproduce the paper's number. Such a row proves nothing and is never said to hold.
  A note below each table has the effect of the fit on other rows;
* *from a fit*: from a constant that was fitted to another row;
* *from an assumption*: from a constant that no source gives, and that was not fitted to a number of the paper;
* *given*: an input from the paper, or built in: not a result.

If a number is known to differ from the paper's, the row declares this, with the reason; the test fails if the numbers
agree. If a paper has a drawing without numbers, the row has the paper's words. The profiles have the source of each of
their constants (`niclab profile show`).
";

/// A paper with its numbers and the models'.
#[derive(Debug, Serialize)]
struct Paper {
    /// Title and authors.
    title: &'static str,
    #[serde(skip)]
    figures: PaperFigures,
    #[serde(skip)]
    made: Made,
    compared: Vec<Compared>,
}

/// All papers' numbers next to the models'.
#[derive(Debug, Serialize)]
pub struct Validation {
    papers: Vec<Paper>,
}

impl Validation {
    /// Makes the figures of all papers that have a model.
    ///
    /// # Errors
    /// When a program that makes them is missing or fails.
    pub fn make(offline: bool) -> Result<Self> {
        let papers = published().map(|(figures, model)| {
            let made = (figures.make)(offline).with_context(|| format!("the figures `{}`", figures.name))?;
            let compared = made.compared.clone();
            Ok(Paper { title: model.paper, figures, made, compared })
        });
        Ok(Self { papers: papers.collect::<Result<_>>()? })
    }

    /// Whether every number is as declared.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.papers.iter().all(|paper| paper.made.hold)
    }

    /// The page, as Markdown.
    #[must_use]
    pub fn page(&self) -> String {
        let mut text = ABOUT.to_owned();
        text += "\n| paper | rows | nothing chosen: hold | and differ | fitted | given |\n|---|---|---|---|---|---|\n";
        for paper in &self.papers {
            let rows = &paper.compared;
            let count = |wanted: &dyn Fn(&Compared) -> bool| rows.iter().filter(|row| wanted(row)).count();
            text += &format!(
                "| [{}](#{}) | {} | {} | {} | {} | {} |\n",
                paper.figures.name,
                paper.figures.name,
                rows.len(),
                count(&|row| row.verdict() == Verdict::Holds),
                count(&|row| row.verdict() == Verdict::KnownDifference),
                count(&|row| matches!(row.provenance, Provenance::Fitted(_))),
                count(&|row| matches!(row.provenance, Provenance::Given(_))),
            );
        }
        for paper in &self.papers {
            let figures = &paper.figures;
            text += &format!(
                "\n## {}\n\n{}. `niclab figures {}`: [tables](figures/{}), [drawing](figures/{}.svg).\n\n",
                figures.name, paper.title, figures.name, figures.file, figures.name
            );
            text += &compared::markdown(&paper.compared);
        }
        text
    }

    /// The validation as JSON.
    ///
    /// # Errors
    /// When it cannot be converted to JSON.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }

    /// Writes the page and the figures of all papers, as in docs/.
    ///
    /// # Errors
    /// When a file cannot be written; the error names it.
    pub fn write_into(&self, pages: Pages) -> Result<()> {
        pages.page.write(self.page().as_bytes())?;
        for (paper, (tables, drawing)) in self.papers.iter().zip(pages.figures) {
            tables.write(paper.made.printed().as_bytes())?;
            drawing.write(plot::svg(&paper.made.panels).as_bytes())?;
        }
        Ok(())
    }
}

/// The files of [`Validation::write_into`]; they are opened before any figure is made.
#[derive(Debug)]
pub struct Pages {
    page: OutputFile,
    /// Tables and drawing of each paper.
    figures: Vec<(OutputFile, OutputFile)>,
}

impl Pages {
    /// Opens all files in `folder`, which is created if needed.
    ///
    /// # Errors
    /// All files that cannot be opened.
    pub fn open(folder: &Path) -> Result<Self> {
        Self::of(folder, published().map(|(figures, _)| figures))
    }

    fn of(folder: &Path, papers: impl Iterator<Item = PaperFigures>) -> Result<Self> {
        let in_figures = folder.join("figures");
        fs::create_dir_all(&in_figures).with_context(|| format!("cannot make {}", in_figures.display()))?;
        let mut errors = Vec::new();
        let mut open =
            |path: PathBuf| OutputFile::create(&path, &[]).map_err(|error| errors.push(error)).ok();
        let page = open(folder.join("VALIDATION.md"));
        let mut pair = |figures: PaperFigures| {
            let drawing = open(in_figures.join(format!("{}.svg", figures.name)));
            open(in_figures.join(figures.file)).zip(drawing)
        };
        let figures: Vec<_> = papers.map(&mut pair).collect();
        match (page, figures.into_iter().collect()) {
            (Some(page), Some(figures)) => Ok(Self { page, figures }),
            _ => Err(OutputErrors(errors).into()),
        }
    }
}

/// The papers that have figures and a model.
fn published() -> impl Iterator<Item = (PaperFigures, NicModel)> {
    crate::models::figures().iter().filter_map(|figures| Some((*figures, NicModel::named(figures.name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::compared::Published;

    fn validation() -> Validation {
        let rows = vec![
            Compared::new("section 1", "latency", "us", Published::number(17.0))
                .ours(17.0, 1)
                .fitted("send_ps"),
            Compared::new("section 2", "rate", "MB/s", Published::number(12.2)).ours(12.1, 1),
        ];
        let figures = PaperFigures {
            name: "sample",
            help: "",
            file: "sample.txt",
            make: |_| unreachable!("made already"),
        };
        let made = Made::new(&(), "table".to_owned(), &[], rows.clone(), true).unwrap();
        Validation { papers: vec![Paper { title: "A paper", figures, made, compared: rows }] }
    }

    #[test]
    fn page_counts_fitted_rows_separately() {
        let page = validation().page();
        assert!(page.contains("| [sample](#sample) | 2 | 1 | 0 | 1 | 0 |"), "{page}");
        assert!(page.contains("`niclab figures sample`: [tables](figures/sample.txt)"), "{page}");
    }

    #[test]
    fn written_files_match_the_commands_output() {
        let folder = tempfile::tempdir().unwrap();
        let validation = validation();
        let open = |folder: &Path| Pages::of(folder, validation.papers.iter().map(|paper| paper.figures));
        validation.write_into(open(folder.path()).unwrap()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(
            (read("VALIDATION.md"), read("figures/sample.txt")),
            (validation.page(), "table\n".to_owned())
        );
        assert!(read("figures/sample.svg").contains("<svg"));
        // The error names all files that cannot be written, before any figure is made.
        for file in ["VALIDATION.md", "figures/sample.svg"] {
            fs::remove_file(folder.path().join(file)).unwrap();
            fs::create_dir(folder.path().join(file)).unwrap();
        }
        let error = open(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("VALIDATION.md is neither") && error.contains("sample.svg is neither"),
            "{error}"
        );
    }
}
