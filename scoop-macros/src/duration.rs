//! Durations as attributes take them: a number and a unit.

use std::time::Duration;

use syn::LitStr;

/// The units and their milliseconds.
const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// `"5s"`, `"250ms"`, `"2d"`.
pub(crate) fn parse(literal: &LitStr) -> syn::Result<Duration> {
    read(&literal.value()).map_err(|why| syn::Error::new(literal.span(), why))
}

fn read(text: &str) -> Result<Duration, String> {
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(no_duration(text));
    };
    if number.is_empty() {
        return Err(no_duration(text));
    }
    let ms = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*unit_ms));
    match ms {
        Some(0) => Err("a duration must be longer than nothing".into()),
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err(format!("{text:?} is too long for a duration")),
    }
}

fn no_duration(text: &str) -> String {
    format!(
        "{text:?} is no duration; write a whole number and one of `ms`, `s`, `m`, `h`, `d`, as in `\"30s\"`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_a_unit_make_a_duration() {
        let cases = [("250ms", 250), ("5s", 5_000), ("2m", 120_000), ("1h", 3_600_000), ("2d", 172_800_000)];
        for (text, ms) in cases {
            assert_eq!(read(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let texts = ["", "5", "s", "5 s", "-5s", "1.5s", "5sec", "0s", "ä", "99999999999999999999d"];
        for text in texts {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
