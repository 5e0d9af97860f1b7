//! Times of the server, which Rust has not all of.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef};
use sqlx::{Decode, Encode, Postgres, Type};
use time::OffsetDateTime;
use time::macros::datetime;

/// A time as the server stores it: microseconds since the beginning of the year 2000. The server has times that Rust does
/// not have. Such a time is read as the nearest one of the years 1 to 9999, and bound as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredTime(i64);

impl StoredTime {
    const ZERO: OffsetDateTime = datetime!(2000-01-01 00:00 UTC);
    const EARLIEST: OffsetDateTime = datetime!(0001-01-01 00:00 UTC);
    /// There are later times in that year: calculations with this one do not overflow.
    pub const LATEST: OffsetDateTime = datetime!(9999-12-31 00:00 UTC);

    /// The nearest time of the years 1 to 9999.
    pub fn time(self) -> OffsetDateTime {
        let time = Self::ZERO.checked_add(time::Duration::microseconds(self.0));
        let time = time.unwrap_or(if self.0 < 0 { Self::EARLIEST } else { Self::LATEST });
        time.clamp(Self::EARLIEST, Self::LATEST)
    }

    /// Microseconds since the beginning of the year 2000.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// The time so many microseconds after the beginning of the year 2000.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// The time, unless it is outside of the years 1 to 9999.
    pub fn exact(self) -> Option<OffsetDateTime> {
        Some(self.time()).filter(|time| Self::from(*time) == self)
    }
}

impl From<OffsetDateTime> for StoredTime {
    fn from(time: OffsetDateTime) -> Self {
        let micros = (time - Self::ZERO).whole_microseconds();
        Self(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

impl Type<Postgres> for StoredTime {
    fn type_info() -> PgTypeInfo {
        OffsetDateTime::type_info()
    }
}

impl Decode<'_, Postgres> for StoredTime {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        match value.format() {
            PgValueFormat::Binary => Ok(Self(i64::from_be_bytes(value.as_bytes()?.try_into()?))),
            PgValueFormat::Text => OffsetDateTime::decode(value).map(Self::from),
        }
    }
}

impl Encode<'_, Postgres> for StoredTime {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0.to_be_bytes());
        Ok(IsNull::No)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_times_that_rust_has_not_become_the_nearest_ones() {
        let second = 1_000_000;
        assert_eq!(StoredTime(-second).time(), datetime!(1999-12-31 23:59:59 UTC));
        for (micros, time) in [(i64::MAX, StoredTime::LATEST), (i64::MIN, StoredTime::EARLIEST)] {
            assert_eq!(StoredTime(micros).time(), time);
            assert_eq!(StoredTime(micros / 10).time(), time);
            assert_eq!(StoredTime(micros).exact(), None);
        }
    }

    #[test]
    fn time_of_rust_is_stored_as_it_is() {
        for time in [StoredTime::EARLIEST, datetime!(1969-12-31 23:59:59.999999 UTC), StoredTime::LATEST] {
            assert_eq!(StoredTime::from(time).exact(), Some(time));
        }
    }
}
