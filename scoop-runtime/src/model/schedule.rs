//! Computes the due times of a schedule: a pure function of the clock.

#[cfg(not(feature = "cron"))]
mod absent;

use std::iter::successors;

use scoop_core::{Missed, Overlap, Recurrence, Schedule};
#[cfg(feature = "cron")]
use scoop_cron::{Cron, CronError};
use time::{Duration, OffsetDateTime};

#[cfg(not(feature = "cron"))]
use absent::{Cron, CronError};

/// The maximum delay of a time that does not count as missed. A process checks its schedules at least this often,
/// even if its clock changes.
const LATE_MAX: Duration = Duration::MINUTE;

/// The maximum number of missed times made up for in one transaction.
const TICKS_MAX: usize = 100;

/// The maximum number of missed times made up for at all: the newest ones. A damaged row may name a time of any age.
pub(crate) const MISSED_MAX: usize = 10_000;

/// The shortest time between two times of a cron expression.
const CRON_MIN: Duration = Duration::SECOND;

#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    times: Times,
    missed: Missed,
    pub(crate) overlap: Overlap,
}

#[derive(Clone, Debug)]
enum Times {
    /// The interval in microseconds; at least one.
    Every(i64),
    Cron(Box<Cron>),
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DueTicks {
    /// The times to run for now.
    pub(crate) ticks: Vec<OffsetDateTime>,
    /// The next time to check; `None` if there is no later time.
    pub(crate) next_at: Option<OffsetDateTime>,
    /// The first time that is made up for, if too many were missed for all of them.
    pub(crate) from: Option<OffsetDateTime>,
    /// Whether times are left out since the last run has not ended.
    pub(crate) is_overlap: bool,
}

/// The hierarchy of the last run of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastTick {
    Ended,
    Unfinished,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimetableError {
    #[error(transparent)]
    Cron(#[from] CronError),
    #[error("it is due every {0:?}, but a whole number of milliseconds is possible, at least one")]
    Every(std::time::Duration),
    #[error("it has a kind of schedule that this program does not know")]
    Unknown,
    #[error("the database refuses what its next run would write: {0}")]
    Refused(String),
}

impl Timetable {
    pub(crate) fn new(schedule: &Schedule) -> Result<Self, TimetableError> {
        let times = match schedule.recurrence {
            Recurrence::Every(pause) => Times::every_ms(every_ms(pause)?)?,
            Recurrence::Cron { expression, zone } => Times::Cron(Box::new(Cron::new(expression, zone)?)),
        };
        Ok(Self { times, missed: schedule.missed, overlap: schedule.overlap })
    }

    /// The timetable of a stored schedule, perhaps of another program.
    pub(crate) fn stored(
        every_ms: Option<i64>,
        cron: Option<(&str, &str)>,
        missed: Missed,
        overlap: Overlap,
    ) -> Result<Self, TimetableError> {
        let times = match (every_ms, cron) {
            (Some(ms), None) => Times::every_ms(ms)?,
            (None, Some((expression, zone))) => Times::Cron(Box::new(Cron::new(expression, zone)?)),
            _ => return Err(TimetableError::Unknown),
        };
        Ok(Self { times, missed, overlap })
    }

    /// The first time of a schedule that begins now.
    pub(crate) fn first(&self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        self.after(now, now)
    }

    /// The times to run for now, given the stored `next_at`.
    fn due(&self, next_at: OffsetDateTime, now: OffsetDateTime) -> DueTicks {
        if now < next_at {
            return DueTicks { next_at: Some(next_at), ..DueTicks::default() };
        }
        let come = |from| self.between(next_at, from, now);
        let mut from = None;
        let ticks: Vec<_> = match self.missed {
            Missed::All => {
                from = self.first_caught_up(next_at, now);
                come(from.or(Some(next_at))).take(TICKS_MAX).collect()
            }
            Missed::Once => come(Some(next_at)).take(1).collect(),
            Missed::Skip => {
                let recent = now - LATE_MAX;
                let first = if next_at >= recent { Some(next_at) } else { self.after(next_at, recent) };
                come(first).last().into_iter().collect()
            }
        };
        let reached = match (self.missed, ticks.last()) {
            (Missed::All, Some(last)) => *last,
            _ => now,
        };
        DueTicks { ticks, next_at: self.after(next_at, reached), from, is_overlap: false }
    }

    /// The same after the last run, which may go on: then the schedule may leave these times out.
    pub(crate) fn due_after(&self, last: LastTick, next_at: OffsetDateTime, now: OffsetDateTime) -> DueTicks {
        let due = self.due(next_at, now);
        match (last, self.overlap) {
            (LastTick::Unfinished, Overlap::Skip) => DueTicks { ticks: vec![], is_overlap: true, ..due },
            _ => due,
        }
    }

    /// The times of the schedule from one of them to now. `known` is a time of the schedule that is not later.
    fn between(
        &self,
        known: OffsetDateTime,
        from: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> impl Iterator<Item = OffsetDateTime> {
        successors(from, move |time| self.after(known, *time)).take_while(move |time| *time <= now)
    }

    /// The first time that is made up for, if more than [`MISSED_MAX`] were missed since `next_at`. Doubles the period
    /// that it looks back while that has few enough times: the cost does not depend on `next_at`.
    fn first_caught_up(&self, next_at: OffsetDateTime, now: OffsetDateTime) -> Option<OffsetDateTime> {
        let has_too_many = |from| self.between(next_at, from, now).nth(MISSED_MAX).is_some();
        let shortest = match &self.times {
            Times::Every(micros) => Duration::microseconds(*micros),
            Times::Cron(_) => CRON_MIN,
        };
        let mut back = shortest.checked_mul(i32::try_from(MISSED_MAX).unwrap_or(i32::MAX));
        let mut first = None;
        loop {
            let begin = back.and_then(|back| now.checked_sub(back)).filter(|begin| *begin > next_at);
            let Some(begin) = begin else {
                return first.filter(|_| has_too_many(Some(next_at)));
            };
            let from = self.after(next_at, begin);
            if has_too_many(from) {
                return first.or(from);
            }
            first = from;
            back = back.and_then(|back| back.checked_mul(2));
        }
    }

    /// The first time of the schedule after `time`. `known` is a time of the schedule that is not later.
    fn after(&self, known: OffsetDateTime, time: OffsetDateTime) -> Option<OffsetDateTime> {
        match &self.times {
            Times::Every(micros) => {
                let passed = (time - known).whole_microseconds() / i128::from(*micros);
                let ahead = i64::try_from((passed + 1) * i128::from(*micros)).ok()?;
                known.checked_add(Duration::microseconds(ahead))
            }
            Times::Cron(cron) => cron.next_after(time.into()).map(OffsetDateTime::from),
        }
    }
}

impl Times {
    fn every_ms(ms: i64) -> Result<Self, TimetableError> {
        let micros = ms.checked_mul(1_000).filter(|micros| *micros > 0);
        micros.map(Self::Every).ok_or(TimetableError::Unknown)
    }
}

pub(crate) fn every_ms(pause: std::time::Duration) -> Result<i64, TimetableError> {
    let whole = pause.subsec_nanos().is_multiple_of(1_000_000);
    let ms = i64::try_from(pause.as_millis()).ok().filter(|ms| whole && *ms > 0);
    ms.ok_or(TimetableError::Every(pause))
}

#[cfg(test)]
mod tests {
    use time::format_description::well_known::Rfc3339;

    use super::*;

    fn at(text: &str) -> OffsetDateTime {
        OffsetDateTime::parse(text, &Rfc3339).unwrap()
    }

    fn hourly(missed: Missed) -> Timetable {
        Timetable::new(&Schedule::every(std::time::Duration::from_secs(3600)).missed(missed)).unwrap()
    }

    /// The times to run for, and the next one, as `hour:minute`.
    fn due(timetable: &Timetable, next_at: &str, now: &str) -> (Vec<String>, String) {
        let short = |time: OffsetDateTime| format!("{:02}:{:02}", time.hour(), time.minute());
        let due = timetable.due(at(next_at), at(now));
        (due.ticks.into_iter().map(short).collect(), short(due.next_at.unwrap()))
    }

    fn expected(ticks: &[&str], next_at: &str) -> (Vec<String>, String) {
        (ticks.iter().map(|tick| (*tick).to_owned()).collect(), next_at.to_owned())
    }

    #[test]
    fn time_that_is_not_missed_runs_once_with_every_policy() {
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            let due = due(&hourly(missed), "2026-03-01T10:07:00Z", "2026-03-01T10:07:00.020Z");
            assert_eq!(due, expected(&["10:07"], "11:07"), "{missed:?}");
        }
    }

    #[test]
    fn missed_times_are_skipped_or_made_up_for_once_or_each() {
        let due = |missed| due(&hourly(missed), "2026-03-01T10:07:00Z", "2026-03-01T13:30:00Z");
        assert_eq!(due(Missed::Skip), expected(&[], "14:07"));
        assert_eq!(due(Missed::Once), expected(&["10:07"], "14:07"));
        assert_eq!(due(Missed::All), expected(&["10:07", "11:07", "12:07", "13:07"], "14:07"));
    }

    #[test]
    fn time_that_is_late_by_a_minute_is_not_missed() {
        let due = |now| due(&hourly(Missed::Skip), "2026-03-01T10:07:00Z", now);
        assert_eq!(due("2026-03-01T10:08:00Z"), expected(&["10:07"], "11:07"));
        assert_eq!(due("2026-03-01T10:08:01Z"), expected(&[], "11:07"));
        assert_eq!(due("2026-03-01T13:07:01Z"), expected(&["13:07"], "14:07"));
    }

    #[test]
    fn cron_makes_up_for_missed_times() {
        let timetable =
            |missed| Timetable::new(&Schedule::cron("0 6 * * *", "America/New_York").missed(missed)).unwrap();
        let ticks = |missed| timetable(missed).due(at("2026-03-06T11:00:00Z"), at("2026-03-09T10:30:00Z"));
        let next_at = Some(at("2026-03-10T10:00:00Z"));
        let days =
            ["2026-03-06T11:00:00Z", "2026-03-07T11:00:00Z", "2026-03-08T10:00:00Z", "2026-03-09T10:00:00Z"];
        let due = |ticks| DueTicks { ticks, next_at, ..DueTicks::default() };
        assert_eq!(ticks(Missed::Skip), due(vec![]));
        assert_eq!(ticks(Missed::Once), due(vec![at(days[0])]));
        assert_eq!(ticks(Missed::All), due(days.map(at).into()));
    }

    #[test]
    fn missed_times_are_made_up_for_in_batches() {
        let next_at = at("2026-03-01T00:00:00Z");
        let due = hourly(Missed::All).due(next_at, next_at + Duration::hours(1_000));
        assert_eq!(due.ticks.len(), TICKS_MAX);
        assert_eq!(due.next_at, Some(next_at + Duration::hours(100)));
    }

    /// The number of times that are made up for, and the first of them.
    fn made_up_for(timetable: &Timetable, next_at: &str, now: OffsetDateTime) -> (usize, OffsetDateTime) {
        let due = timetable.due(at(next_at), now);
        assert_eq!((due.from, due.ticks.len()), (Some(due.ticks[0]), TICKS_MAX));
        let next_at = due.next_at.unwrap();
        assert_eq!(timetable.due(next_at, now).from, None, "those that are left are few enough");
        (TICKS_MAX + timetable.between(next_at, Some(next_at), now).count(), due.ticks[0])
    }

    #[test]
    fn of_too_many_missed_times_the_newest_are_made_up_for() {
        let now = at("2026-03-01T00:00:00Z");
        let second = Schedule::every(std::time::Duration::from_secs(1)).missed(Missed::All);
        let second = Timetable::new(&second).unwrap();
        for (timetable, next_at, age) in [
            (&hourly(Missed::All), "1900-01-01T00:07:00Z", Duration::hours(10_000)),
            (&hourly(Missed::All), "2025-01-01T00:07:00Z", Duration::hours(10_000)),
            (&second, "0001-01-01T00:00:00Z", Duration::seconds(10_000)),
        ] {
            let (count, first) = made_up_for(timetable, next_at, now);
            assert_eq!(count, MISSED_MAX, "{next_at}");
            assert!(first >= now - age && first < now - age + Duration::HOUR, "{first}");
        }
        for cron in ["* * * * * *", "0 6 * * *"] {
            let timetable =
                Timetable::new(&Schedule::cron(cron, "Europe/Prague").missed(Missed::All)).unwrap();
            let (count, _) = made_up_for(&timetable, "1900-01-01T00:00:00Z", now);
            assert!((MISSED_MAX / 2 - 1..=MISSED_MAX).contains(&count), "{cron}: {count}");
        }
    }

    #[test]
    fn few_missed_times_of_a_long_period_are_all_made_up_for() {
        let yearly = Timetable::new(&Schedule::cron("0 0 1 1 *", "UTC").missed(Missed::All)).unwrap();
        let due = yearly.due(at("1950-01-01T00:00:00Z"), at("2026-03-01T00:00:00Z"));
        assert_eq!((due.ticks.len(), due.ticks[0], due.from), (77, at("1950-01-01T00:00:00Z"), None));
    }

    /// Late checks do not shift the times.
    #[test]
    fn late_checks_cause_no_drift() {
        let pause = std::time::Duration::from_millis(50);
        let timetable = Timetable::new(&Schedule::every(pause)).unwrap();
        let start = at("2026-03-01T00:00:00Z");
        let mut next_at = timetable.first(start).unwrap();
        for late in 0..1_000 {
            let now = next_at + Duration::microseconds(late * 37);
            next_at = timetable.due(next_at, now).next_at.unwrap();
            assert_eq!((next_at - start).whole_microseconds() % 50_000, 0);
            assert!(next_at > now && next_at <= now + pause);
        }
    }

    #[test]
    fn clock_that_was_put_back_makes_nothing_due_again() {
        let (next_at, earlier) = (at("2026-03-01T10:07:00Z"), at("2026-03-01T08:00:00Z"));
        for missed in [Missed::Skip, Missed::Once, Missed::All] {
            let due = hourly(missed).due(next_at, earlier);
            assert_eq!(due, DueTicks { next_at: Some(next_at), ..DueTicks::default() }, "{missed:?}");
        }
    }

    #[test]
    fn time_during_the_last_run_is_left_out_if_the_schedule_says_so() {
        let (next_at, now) = (at("2026-03-01T10:07:00Z"), at("2026-03-01T10:07:01Z"));
        for overlap in [Overlap::Allow, Overlap::Skip] {
            let timetable = Timetable { overlap, ..hourly(Missed::Once) };
            let is_left_out = |last| {
                let due = timetable.due_after(last, next_at, now);
                assert_eq!(due.next_at, Some(at("2026-03-01T11:07:00Z")));
                assert_eq!(due.is_overlap, due.ticks.is_empty());
                due.is_overlap
            };
            assert!(!is_left_out(LastTick::Ended));
            assert_eq!(is_left_out(LastTick::Unfinished), overlap == Overlap::Skip);
        }
    }

    #[test]
    fn invalid_schedule_is_refused() {
        let of = |schedule| Timetable::new(&schedule).unwrap_err();
        for pause in [std::time::Duration::ZERO, std::time::Duration::from_nanos(1_500_000)] {
            assert_eq!(of(Schedule::every(pause)), TimetableError::Every(pause));
        }
        assert_eq!(of(Schedule::cron("0 0 30 2 *", "UTC")), TimetableError::Cron(CronError::Never));
        let stored = |every_ms, cron| Timetable::stored(every_ms, cron, Missed::Once, Overlap::Allow);
        assert_eq!(stored(None, None).unwrap_err(), TimetableError::Unknown);
        assert_eq!(stored(Some(0), None).unwrap_err(), TimetableError::Unknown);
        assert!(stored(None, Some(("* * * * *", "UTC"))).is_ok());
        assert!(stored(Some(1), None).is_ok());
        assert_eq!(stored(Some(1), Some(("* * * * *", "UTC"))).unwrap_err(), TimetableError::Unknown);
    }
}
