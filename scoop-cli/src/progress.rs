//! The progress of long work, on standard error if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// The interval at which the sign of life moves.
const TICK: Duration = Duration::from_millis(100);

/// The bar of work whose amount is known.
const BAR: &str = "[{bar:30}] {pos} of {len} {msg}, {elapsed} so far";

/// A line that is there while the work goes on. Without a terminal nothing is drawn.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of an unknown amount begins.
    pub(crate) fn begin(text: &'static str) -> Self {
        Self::drawn(ProgressBar::new_spinner().with_message(text))
    }

    /// Work on so many things begins.
    pub(crate) fn of(total: u64, things: &'static str) -> Self {
        Self::drawn(ProgressBar::new(total).with_style(style()).with_message(things))
    }

    fn drawn(bar: ProgressBar) -> Self {
        bar.tick();
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// One more thing is done.
    pub(crate) fn advance(&self) {
        self.bar.inc(1);
    }

    /// A function that replaces the text.
    pub(crate) fn teller(&self) -> impl Fn(String) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |text| bar.set_message(text)
    }

    /// A function that says how many things are done, and how many there are.
    pub(crate) fn counter(&self, things: &'static str) -> impl Fn(u64, u64) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |completed, total| {
            if bar.length() != Some(total) {
                bar.set_style(style());
                bar.set_message(things);
                bar.set_length(total);
            }
            bar.set_position(completed);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style() -> ProgressStyle {
    // The template is a constant, so it has no mistake; otherwise another bar would do.
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_of_the_bar_is_valid() {
        assert!(ProgressStyle::with_template(BAR).is_ok());
    }

    #[test]
    fn bar_counts_what_is_done() {
        let progress = Progress::of(3, "runs");
        progress.advance();
        assert_eq!((progress.bar.position(), progress.bar.length()), (1, Some(3)));
        let unknown = Progress::begin("reading");
        assert_eq!(unknown.bar.length(), None);
        unknown.counter("hierarchies")(3, 7);
        assert_eq!((unknown.bar.position(), unknown.bar.length()), (3, Some(7)));
    }
}
