//! Durations in attributes: a number and a unit.

use std::time::Duration;

use syn::LitStr;

const UNITS: [(&[&str], u64); 6] = [
    (&["ms", "millisecond", "milliseconds"], 1),
    (&["s", "second", "seconds"], 1_000),
    (&["m", "minute", "minutes"], 60_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], DAY_MS),
    (&["w", "week", "weeks"], 7 * DAY_MS),
];

const DAY_MS: u64 = 86_400_000;

/// A hundred years. A longer duration is a mistaken unit.
const LONGEST_MS: u64 = 36_525 * DAY_MS;

/// Parses `"5s"`, `"250ms"`, `"2 days"`.
pub(crate) fn parse(literal: &LitStr) -> syn::Result<Duration> {
    read(&literal.value()).map_err(|why| syn::Error::new(literal.span(), why))
}

/// Parses `"100ms..30s"`, from the shorter to the longer. A single duration is both.
pub(crate) fn parse_range(literal: &LitStr) -> syn::Result<(Duration, Duration)> {
    read_range(&literal.value()).map_err(|why| syn::Error::new(literal.span(), why))
}

fn read_range(text: &str) -> Result<(Duration, Duration), String> {
    let Some((first, last)) = text.split_once("..") else {
        return read(text).map(|only| (only, only));
    };
    let (shorter, longer) = (read(first)?, read(last)?);
    if shorter > longer {
        return Err(format!("{first:?} is longer than {last:?}; write `\"{last}..{first}\"`"));
    }
    Ok((shorter, longer))
}

pub(crate) fn read(text: &str) -> Result<Duration, String> {
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let Some((_, unit_ms)) = UNITS.iter().find(|(names, _)| names.contains(&unit)) else {
        return Err(no_duration(text));
    };
    if number.is_empty() {
        return Err(no_duration(text));
    }
    let ms = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*unit_ms));
    match ms.filter(|ms| *ms <= LONGEST_MS) {
        Some(0) => Err("a duration must be longer than nothing".into()),
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err(format!("{text:?} is longer than 100 years, the longest duration; check the unit")),
    }
}

fn no_duration(text: &str) -> String {
    format!(
        "{text:?} is no duration; write a whole number and one of `ms`, `s`, `m`, `h`, `d`, `w`, \
         as in `\"30s\"` or `\"2 days\"`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_make_a_duration() {
        let cases = [
            ("250ms", 250),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("1w", 604_800_000),
            ("5 s", 5_000),
            ("1 millisecond", 1),
            ("30 seconds", 30_000),
            ("1minute", 60_000),
            ("36 hours", 129_600_000),
            ("2 days", 172_800_000),
            ("1 week", 604_800_000),
            ("36525d", LONGEST_MS),
        ];
        for (text, ms) in cases {
            assert_eq!(read(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let texts = [
            "",
            "5",
            "5 ",
            "s",
            " s",
            "5  s",
            " 5s",
            "5s ",
            "-5s",
            "1.5s",
            "5sec",
            "5 Seconds",
            "0s",
            "0 days",
            "ä",
            "36526d",
            "5219 weeks",
            "99999999999999999999d",
        ];
        for text in texts {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_range_goes_from_the_shorter_to_the_longer() {
        let (ms, s) = (Duration::from_millis, Duration::from_secs);
        assert_eq!(read_range("100ms..30s"), Ok((ms(100), s(30))));
        assert_eq!(read_range("1 second..1s"), Ok((s(1), s(1))));
        assert_eq!(read_range("5s"), Ok((s(5), s(5))));
        for text in ["", "..", "5s..", "..5s", "1s..=5s", "1s..2s..3s", "30s..100ms", "0s..1s", "1s..100000w"]
        {
            assert!(read_range(text).is_err(), "{text}");
        }
    }
}

#[cfg(test)]
mod fuzz {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    fn text() -> impl Strategy<Value = String> {
        let units: Vec<_> = UNITS.iter().flat_map(|(names, _)| names.iter().copied()).collect();
        let number = prop_oneof![(0u64..100).prop_map(|n| n.to_string()), "[0-9]{0,22}"];
        let written = (number, select(&["", " ", "  "][..]), select(units), select(&["", "", " ", "s"][..]));
        let written = written.prop_map(|(number, blank, unit, rest)| format!("{number}{blank}{unit}{rest}"));
        prop_oneof![9 => written, 1 => ".{0,8}", 1 => "[0-9msd. -]{0,8}"]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn parsed_duration_can_be_written_again(text in text()) {
            match read(&text) {
                Ok(duration) => {
                    prop_assert!((1..=u128::from(LONGEST_MS)).contains(&duration.as_millis()));
                    prop_assert_eq!(read(&format!("{}ms", duration.as_millis())), Ok(duration));
                    prop_assert_eq!(read_range(&text), Ok((duration, duration)));
                }
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }

        #[test]
        fn a_range_goes_up(first in text(), last in text()) {
            let range = read_range(&format!("{first}..{last}"));
            match (read(&first), read(&last)) {
                (Ok(first), Ok(last)) if first <= last => prop_assert_eq!(range, Ok((first, last))),
                // The end of the first text may be read as the middle of the range.
                _ => prop_assert!(range.is_err() || first.contains("..") || last.starts_with('.')),
            }
        }
    }
}
