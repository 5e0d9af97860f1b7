//! The fields of a cron expression, without a zone: the clock readings that match it.

use croner::Cron as Pattern;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::{DateTime, date};

use crate::CronError;

/// The names of the fields, and their values besides `*`.
const FIELDS: [(&str, &str); 6] = [
    ("second", "0 to 59"),
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, `L`"),
    ("month", "1 to 12, `JAN` to `DEC`"),
    ("day of the week", "0 to 7, `SUN` to `SAT`"),
];

/// The position of the hour among the fields.
const HOUR: usize = 2;

/// The start of the search for a due time, which checks that there is one.
const ANY_DAY: DateTime = date(2024, 1, 1).at(0, 0, 0, 0);

/// A cron expression that is due at some time.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pattern: Pattern,
    hourly: bool,
}

impl Expression {
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        let mut fields: Vec<_> = text.split_whitespace().collect();
        match fields.len() {
            5 => fields.insert(0, "0"),
            6 => {}
            0 => return Err(not_five("none")),
            count => return Err(not_five(count)),
        }
        for (index, field) in fields.iter().enumerate() {
            // The other fields are `*`, so that an error belongs to this field.
            let mut single = ["*"; 6];
            single[index] = field;
            if parser.parse(&single.join(" ")).is_err() {
                return Err(no_field(field, index));
            }
        }
        let pattern = parser.parse(&fields.join(" "));
        let pattern = pattern.map_err(|error| CronError::Expression(error.to_string()))?;
        let expression = Self { pattern, hourly: fields[HOUR] == "*" };
        expression.next_from(ANY_DAY).ok_or(CronError::Never)?;
        Ok(expression)
    }

    /// Whether the hour is `*`.
    pub(crate) fn is_hourly(&self) -> bool {
        self.hourly
    }

    /// The next matching clock reading, which may be `from` itself.
    pub(crate) fn next_from(&self, from: DateTime) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&from, true).ok()
    }

    /// The next matching clock reading after this one.
    pub(crate) fn next_after(&self, reading: DateTime) -> Option<DateTime> {
        self.pattern.find_next_occurrence(&reading, false).ok()
    }
}

fn not_five(count: impl std::fmt::Display) -> CronError {
    let [_, minute, hour, day, month, weekday] = FIELDS.map(|(name, _)| name);
    let fields = format!("{minute}, {hour}, {day}, {month} and {weekday}");
    CronError::Expression(format!("a cron expression has five fields, {fields}; this one has {count}"))
}

fn no_field(field: &str, index: usize) -> CronError {
    let (name, range) = FIELDS[index];
    let others = "`*`, or something like `1-5`, `1,3` or `*/10`";
    CronError::Expression(format!("`{field}` is no {name}; write {range}, {others}"))
}
