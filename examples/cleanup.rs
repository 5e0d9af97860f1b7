//! Cleanup with `finally`: it runs once the step and its children are over, with any outcome. It gets the value
//! of the step, if there is one.
//!
//! ```text
//! cargo run -p examples --example cleanup
//! ```

use std::fs;
use std::path::PathBuf;

use scoop::prelude::*;
use uuid::Uuid;

/// A report that is assembled in a folder of its own, and printed by another saga.
#[derive(Message, Serialize, Deserialize)]
struct ReportWanted {
    id: Uuid,
    /// The step that fails: none, `"writing"`, `"printing"` or `"sending"`.
    trouble: String,
}

#[derive(Message, Serialize, Deserialize)]
struct PrintReport {
    folder: PathBuf,
    trouble: String,
}

impl ReportWanted {
    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(format!("scoop-report-{}", self.id))
    }
}

/// How many pages the report has.
#[derive(Serialize, Deserialize)]
struct Pages(usize);

#[derive(Default)]
struct Reports;

#[saga]
#[subscribes(ReportWanted)]
impl Reports {
    #[step(finally = clear_up)]
    async fn write(&self, scope: &mut Scope<'_>, report: &ReportWanted) -> Result<Pages> {
        fs::create_dir_all(report.folder())?;
        fs::write(report.folder().join("page-1"), "all is well")?;
        if report.trouble == "writing" {
            return Err(Error::msg("out of ink"));
        }
        scope.launch(PrintReport { folder: report.folder(), trouble: report.trouble.clone() }).await?;
        Ok(Pages(1))
    }

    /// Like any step it may run again after a crash, so it accepts that the folder is gone already.
    async fn clear_up(&self, _: &mut Scope<'_>, report: &ReportWanted, pages: Option<&Pages>) -> Result<()> {
        println!("  clearing up after {} pages", pages.map_or(0, |pages| pages.0));
        match fs::remove_dir_all(report.folder()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The folder is gone when this begins.
    #[step]
    async fn send(&self, _: &mut Scope<'_>, report: &ReportWanted, pages: &Pages) -> Result<()> {
        assert!(!report.folder().exists(), "the folder was not cleared up");
        if report.trouble == "sending" {
            return Err(Error::msg("no stamps"));
        }
        println!("  sending {} pages", pages.0);
        Ok(())
    }
}

#[derive(Default)]
struct Printer;

#[saga]
#[subscribes(PrintReport)]
impl Printer {
    #[step]
    async fn print(&self, _: &mut Scope<'_>, print: &PrintReport) -> Result<()> {
        println!("  printing: {}", fs::read_to_string(print.folder.join("page-1"))?);
        if print.trouble == "printing" { Err(Error::msg("a paper jam")) } else { Ok(()) }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let scoop = Scoop::builder().embedded().start().await?;
    for trouble in ["", "writing", "printing", "sending"] {
        println!("trouble: {trouble:?}");
        let report = ReportWanted { id: Uuid::new_v4(), trouble: trouble.into() };
        let folder = report.folder();
        let report = scoop.launch(report).await?;
        let committed = report.wait().await? == Outcome::Committed;
        assert_eq!(committed, trouble.is_empty(), "{}", report.tree().await?);
        assert!(!folder.exists(), "{}", report.tree().await?);
    }
    scoop.shutdown().await?;
    Ok(())
}
