//! A subscriber that keeps all events, each with the span it was in.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// The fields of an event or of a span, as texts.
pub type Fields = BTreeMap<&'static str, String>;

/// An event.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its target, name and level.
    pub metadata: &'static Metadata<'static>,
    /// What it says.
    pub fields: Fields,
    /// The innermost span it was in: its name, and its fields.
    pub span: Option<(&'static str, Fields)>,
}

/// All events of this thread, at all levels.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    events: Vec<Seen>,
    spans: Vec<(&'static str, Fields)>,
    entered: Vec<u64>,
}

/// A second subscriber. With a single one, `tracing` asks that of the thread which reaches an event first: if another test
/// without a subscriber does, the event is off for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

impl Events {
    /// Keeps the events of this thread until the guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        LazyLock::force(&SECOND);
        let events = Self::default();
        let guard = tracing::subscriber::set_default(events.clone());
        (events, guard)
    }

    /// The events of this name, oldest first.
    pub fn of(&self, name: &str) -> Vec<Seen> {
        self.log().events.iter().filter(|seen| seen.metadata.name() == name).cloned().collect()
    }

    /// The events of targets with this prefix.
    pub fn below(&self, target: &str) -> Vec<Seen> {
        let log = self.log();
        log.events.iter().filter(|seen| seen.metadata.target().starts_with(target)).cloned().collect()
    }

    /// The text of all events below this target.
    pub fn text(&self, target: &str) -> String {
        self.below(target).iter().map(|seen| format!("{:?} {:?}\n", seen.fields, seen.span)).collect()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Read<'a>(&'a mut Fields);

impl Visit for Read<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        write!(text, "{value:?}").expect("a string takes every write");
        self.0.insert(field.name(), text);
    }
}

impl Subscriber for Events {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::new();
        attributes.record(&mut Read(&mut fields));
        let mut log = self.log();
        log.spans.push((attributes.metadata().name(), fields));
        Id::from_u64(u64::try_from(log.spans.len()).expect("there are few"))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Read(&mut fields));
        let mut log = self.log();
        let place = |id: &u64| usize::try_from(id - 1).expect("it was made here");
        let span = log.entered.last().map(|id| log.spans[place(id)].clone());
        log.events.push(Seen { metadata: event.metadata(), fields, span });
    }

    fn enter(&self, span: &Id) {
        self.log().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut log = self.log();
        let at = log.entered.iter().rposition(|entered| *entered == span.into_u64());
        at.map(|at| log.entered.remove(at));
    }
}
