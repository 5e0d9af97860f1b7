//! Scheduled sagas; see `schedule_*.sql`.

use scoop_core::{Missed, Overlap};
use time::OffsetDateTime;
use uuid::Uuid;

use super::MemoryStore;
use super::launch::RootMessage;
use super::state::{ScheduleRow, State};
use crate::model::run::RowState;
use crate::model::schedule::{LastTick, Timetable, TimetableError};
use crate::store::{
    Advanced, Awaited, DueSchedule, FireResult, RequestKey, ScheduleRegistration, ScheduleStorage,
    SubscriptionKeys, TickMessage,
};

impl ScheduleStorage for MemoryStore {
    async fn publish_schedules(&self, schedules: &[ScheduleRegistration<'_>]) -> sqlx::Result<()> {
        self.run("publish_schedules", |state| {
            schedules.iter().for_each(|registered| state.list_schedule(registered));
            Ok(())
        })
        .await
    }

    async fn schedule_next_due(&self, keys: SubscriptionKeys<'_>) -> sqlx::Result<Awaited> {
        self.run("schedule_next_due", |state| {
            let next = own(keys).filter_map(|pair| state.schedules.get(&pair)?.next_at).min();
            let unlisted = own(keys).filter(|pair| !state.schedules.contains_key(pair));
            let unlisted = unlisted.map(|(_, handler)| handler).collect();
            Ok(Awaited { seconds: next.map(|at| (at - state.now()).as_seconds_f64()), unlisted })
        })
        .await
    }

    async fn fire_schedule(&self, keys: SubscriptionKeys<'_>) -> sqlx::Result<FireResult> {
        self.run("fire_schedule", |state| {
            let now = state.now();
            let due = |pair: &(String, String)| {
                state.schedules.get(pair).and_then(|it| it.next_at).is_some_and(|at| at <= now)
            };
            let Some(pair) = own(keys).find(due) else {
                return Ok(FireResult::Nothing);
            };
            let Some(taken) = state.schedules.get(&pair).and_then(|it| it.taken(&pair.0, &pair.1, now))
            else {
                return Ok(FireResult::Nothing);
            };
            let timetable = match &taken.timetable {
                Ok(timetable) => timetable,
                Err(_) => return Ok(FireResult::Unfit(taken)),
            };
            let last = match taken.last_root {
                Some(root) if state.is_busy(root) => LastTick::Unfinished,
                _ => LastTick::Ended,
            };
            let due = timetable.due_after(last, taken.next_at, now);
            let ticks = TickMessage::all(&taken, &due);
            let handlers = state.tick(&ticks)?;
            if let Some(scheduled) = state.schedules.get_mut(&pair) {
                scheduled.next_at = due.next_at;
                scheduled.run_count += i64::try_from(ticks.len()).unwrap_or(i64::MAX);
                scheduled.last_root = ticks.last().map(|tick| tick.root).or(scheduled.last_root);
            }
            Ok(FireResult::Launched(Advanced::new(&taken, &due, handlers)))
        })
        .await
    }

    async fn trigger(
        &self,
        handler: &str,
        root: Uuid,
        asked: RequestKey,
    ) -> sqlx::Result<Option<Vec<String>>> {
        self.run("trigger", |state| {
            let now = state.now();
            let mut named = state.schedules.iter_mut().filter(|((_, name), _)| *name == handler);
            let Some(((topic, _), scheduled)) = named.next() else {
                return Ok(None);
            };
            if !state.requests.insert(asked.id) {
                return Ok(Some(vec![]));
            }
            let topic = topic.clone();
            scheduled.run_count += 1;
            scheduled.last_root = Some(root);
            let run = u64::try_from(scheduled.run_count).unwrap_or_default();
            let tick = TickMessage { root, id: asked.id, ..TickMessage::new(&topic, now, run) };
            state.tick(std::slice::from_ref(&tick)).map(Some)
        })
        .await
    }
}

fn own<'a>((topics, handlers): SubscriptionKeys<'a>) -> impl Iterator<Item = (String, String)> + use<'a> {
    topics.iter().cloned().zip(handlers.iter().cloned())
}

impl State {
    /// An unchanged schedule keeps its next time; a changed one starts again.
    fn list_schedule(&mut self, registered: &ScheduleRegistration<'_>) {
        let pair = (registered.topic.to_owned(), registered.handler.to_owned());
        let fresh = ScheduleRow {
            every_ms: registered.every_ms,
            cron: registered.cron.zip(registered.zone).map(|(cron, zone)| (cron.to_owned(), zone.to_owned())),
            missed: registered.missed,
            overlap: registered.overlap,
            next_at: registered.next_at,
            run_count: 0,
            last_root: None,
        };
        let Some(stored) = self.schedules.get_mut(&pair) else {
            self.schedules.insert(pair, fresh);
            return;
        };
        let same = stored.every_ms == fresh.every_ms && stored.cron == fresh.cron;
        let next_at = if same { stored.next_at } else { fresh.next_at };
        *stored = ScheduleRow { next_at, run_count: stored.run_count, last_root: stored.last_root, ..fresh };
    }

    fn is_busy(&self, root: Uuid) -> bool {
        self.hierarchy(root)
            .is_some_and(|hierarchy| hierarchy.rows.values().any(|row| row.state != RowState::Failed))
    }

    fn tick(&mut self, ticks: &[TickMessage<'_>]) -> sqlx::Result<Vec<String>> {
        let roots = ticks.iter().map(RootMessage::tick).collect::<sqlx::Result<Vec<_>>>()?;
        Ok(self.launch(roots.into_iter(), None).handlers)
    }
}

impl ScheduleRow {
    fn taken(&self, topic: &str, handler: &str, now: OffsetDateTime) -> Option<DueSchedule> {
        let cron = self.cron.as_ref().map(|(cron, zone)| (cron.as_str(), zone.as_str()));
        let timetable = match (Missed::named(self.missed), Overlap::named(self.overlap)) {
            (Some(missed), Some(overlap)) => Timetable::stored(self.every_ms, cron, missed, overlap),
            _ => Err(TimetableError::Unknown),
        };
        let (topic, handler) = (topic.to_owned(), handler.to_owned());
        let (run_count, last_root) = (self.run_count, self.last_root);
        Some(DueSchedule { topic, handler, timetable, next_at: self.next_at?, run_count, last_root, now })
    }
}
