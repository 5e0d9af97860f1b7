//! The progress of long work, on standard error if that is a terminal.

use std::time::Duration;

use indicatif::ProgressBar;

/// The interval at which the sign of life moves.
const TICK: Duration = Duration::from_millis(100);

/// A line that is there while the work goes on.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// The work begins.
    pub(crate) fn begin(text: &'static str) -> Self {
        // How much there is to do is not known before the end. Without a terminal nothing is drawn.
        let bar = ProgressBar::new_spinner().with_message(text);
        bar.enable_steady_tick(TICK);
        Self { bar }
    }

    /// A function that replaces the text.
    pub(crate) fn teller(&self) -> impl Fn(String) + Send + Sync + 'static {
        let bar = self.bar.clone();
        move |text| bar.set_message(text)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
