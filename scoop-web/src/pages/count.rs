//! Numbers of runs.

use std::fmt::{self, Display, Formatter};
use std::iter::Sum;

use scoop_operate::RunCount;

/// A number of runs.
#[derive(Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) runs: usize,
    /// Whether there are perhaps more.
    is_capped: bool,
}

impl From<&RunCount> for Count {
    fn from(count: &RunCount) -> Self {
        Self { runs: count.count, is_capped: count.is_capped }
    }
}

impl Count {
    /// The number, of which there are perhaps more if some are left out.
    pub(super) fn or_more_if(self, is_cut: bool) -> Self {
        Self { is_capped: self.is_capped || is_cut, ..self }
    }

    /// How many of the last hour that are in a second.
    pub(super) fn per_second(self) -> String {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = self.runs as f64 / 3_600.0;
        let more = if self.is_capped { "+" } else { "" };
        if self.runs > 0 && rate < 0.01 { "< 0.01/s".into() } else { format!("{rate:.2}{more}/s") }
    }
}

impl Sum for Count {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), |sum, count| Self {
            runs: sum.runs + count.runs,
            is_capped: sum.is_capped || count.is_capped,
        })
    }
}

impl Display for Count {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.runs, if self.is_capped { "+" } else { "" })
    }
}
