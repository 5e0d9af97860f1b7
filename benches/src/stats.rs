//! Medians, quantiles and ranges of few numbers.

use std::time::Duration;

/// The middle of the numbers, or between the two in the middle; none of none.
pub(crate) fn median(numbers: &[f64]) -> Option<f64> {
    let sorted = sorted(numbers);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// The smallest and the largest.
pub(crate) fn range(numbers: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(numbers);
    Some((*sorted.first()?, *sorted.last()?))
}

/// The time that this percentage of durations does not exceed, in milliseconds; 0 of none.
pub(crate) fn percentile_ms(durations: &[Duration], percent: usize) -> f64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).map_or(0.0, |duration| duration.as_secs_f64() * 1000.0)
}

fn sorted(numbers: &[f64]) -> Vec<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(range(&[2.0, 1.0, 3.0]), Some((1.0, 3.0)));
    }

    #[test]
    fn the_last_of_a_hundred_is_the_99th_percentile() {
        let durations: Vec<_> = (1..=100).map(Duration::from_millis).collect();
        assert_eq!(percentile_ms(&durations, 50), 51.0);
        assert_eq!(percentile_ms(&durations, 99), 100.0);
        assert_eq!(percentile_ms(&[], 99), 0.0);
    }
}
