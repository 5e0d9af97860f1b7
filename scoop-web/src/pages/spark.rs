//! Small charts of the last hour, as SVG.

/// The size of a chart, in its own units.
const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 24.0;

/// A line through numbers at equal distances.
pub(super) struct Spark {
    /// The points of the line.
    pub(super) points: String,
    /// What it shows, for users who do not see it.
    pub(super) label: String,
}

impl Spark {
    /// The chart of numbers of this kind, the oldest first. `None` if there is nothing to show.
    pub(super) fn of(kind: &str, numbers: &[u64]) -> Option<Self> {
        let max = *numbers.iter().max()?;
        let last = *numbers.last()?;
        let steps = u32::try_from(numbers.len().saturating_sub(1)).ok().filter(|steps| *steps > 0)?;
        #[expect(clippy::cast_precision_loss, reason = "a place in a chart")]
        let fraction = |number: u64| number as f64 / max.max(1) as f64;
        let points = (0..).zip(numbers).map(|(nth, number): (u32, _)| {
            let x = WIDTH * f64::from(nth) / f64::from(steps);
            let y = (HEIGHT - 2.0).mul_add(-fraction(*number), HEIGHT - 1.0);
            format!("{x:.1},{y:.1}")
        });
        let points = points.collect::<Vec<_>>().join(" ");
        Some(Self { points, label: format!("{kind} in each minute: {max} at most, {last} in the last one") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_goes_from_the_left_to_the_right_and_up_to_the_maximum() {
        let spark = Spark::of("launched", &[0, 4, 2]).unwrap();
        assert_eq!(spark.points, "0.0,23.0 60.0,1.0 120.0,12.0");
        assert_eq!(spark.label, "launched in each minute: 4 at most, 2 in the last one");
        assert_eq!(Spark::of("launched", &[0, 0]).unwrap().points, "0.0,23.0 120.0,23.0");
        assert!(Spark::of("launched", &[]).is_none());
    }
}
