//! Sagas that run by a schedule.
use scoop::prelude::*;
use scoop::{Missed, Overlap, Schedule};
use std::time::Duration;

#[derive(Default)]
struct Poll;

#[saga(every = "1h")]
#[subscribes(Tick)]
impl Poll {
    #[step]
    async fn poll(&self, _: &mut Scope<'_>, tick: &Tick) -> Result<()> {
        println!("run {}, due at {:?}", tick.count(), tick.due());
        Ok(())
    }
}

#[derive(Default)]
struct Report;

#[saga(
    name = "a-name-of-57-bytes-which-is-as-long-as-it-can-possibly-be",
    cron = "0 3 * * MON-FRI",
    zone = "Europe/Prague",
    missed = "skip",
    overlap = "skip"
)]
#[subscribes(scoop::Tick)]
impl Report {
    #[step]
    async fn write(&self, _: &mut Scope<'_>, _: &scoop::Tick) -> Result<()> {
        Ok(())
    }
}

mod parasites {
    use scoop::prelude::*;

    /// Another one.
    #[derive(Message, Serialize, Deserialize)]
    struct Tick;

    #[derive(Default)]
    struct Remove;

    #[saga]
    #[subscribes(Tick)]
    impl Remove {
        #[step]
        async fn step(&self, _: &mut Scope<'_>, _: &Tick) -> Result<()> {
            Ok(())
        }
    }
}

pub(crate) fn main() {
    assert_eq!(Poll::SCHEDULE, Some(Schedule::every(Duration::from_secs(3600))));
    assert_eq!(Poll::DEFINITION.topic, "ticks.poll");
    let report = Schedule::cron("0 3 * * MON-FRI", "Europe/Prague");
    assert_eq!(Report::SCHEDULE, Some(report.missed(Missed::Skip).overlap(Overlap::Skip)));
    assert_eq!(Report::DEFINITION.topic.len(), 63);
}
