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

/// An event, or a span.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its target, name and level.
    pub metadata: &'static Metadata<'static>,
    /// What it says.
    pub fields: Fields,
    /// The innermost span in which an event was: its name, and its fields.
    pub span: Option<(&'static str, Fields)>,
}

/// All events of this thread, at all levels.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    events: Vec<Seen>,
    spans: Vec<(&'static Metadata<'static>, Fields)>,
    entered: Vec<u64>,
}

/// A second subscriber. With a single one, `tracing` asks that of the thread which reaches an event first: if another test
/// without a subscriber does, the event is off for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));

/// Has that second subscriber be there.
pub(crate) fn have_a_second_subscriber() {
    LazyLock::force(&SECOND);
}

impl Events {
    /// Keeps the events of this thread until the guard is dropped.
    pub fn listen() -> (Self, DefaultGuard) {
        have_a_second_subscriber();
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

    /// The spans of targets with this prefix, oldest first, with all fields recorded so far.
    pub fn spans(&self, target: &str) -> Vec<Seen> {
        let log = self.log();
        let spans = log.spans.iter().filter(|(metadata, _)| metadata.target().starts_with(target));
        spans.map(|(metadata, fields)| Seen { metadata, fields: fields.clone(), span: None }).collect()
    }

    /// The text of all events below this target.
    pub fn text(&self, target: &str) -> String {
        self.below(target).iter().map(|seen| format!("{:?} {:?}\n", seen.fields, seen.span)).collect()
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position of a span.
fn place(id: u64) -> usize {
    usize::try_from(id - 1).expect("it was made here")
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
        log.spans.push((attributes.metadata(), fields));
        Id::from_u64(u64::try_from(log.spans.len()).expect("there are few"))
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut log = self.log();
        values.record(&mut Read(&mut log.spans[place(span.into_u64())].1));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::new();
        event.record(&mut Read(&mut fields));
        let mut log = self.log();
        let span = log.entered.last().map(|id| &log.spans[place(*id)]);
        let span = span.map(|(metadata, fields)| (metadata.name(), fields.clone()));
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
