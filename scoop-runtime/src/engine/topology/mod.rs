//! Which runs this worker may claim, while other workers may have other definitions of the same sagas.
//!
//! Each worker lists the definitions of its sagas. Of several definitions of one saga, that of the worker which
//! started last is *current*: runs continue under it, so that a change reaches runs under way. A worker with
//! another definition claims only runs that are reserved for its definition, because newer ones refused them
//! (`run_hand_over.sql`). The topology that a worker has read has a number, which each claim names: after another worker
//! has started or ended, the statement claims nothing until this worker has read the topology again.
//!
//! A saga that a newer program has renamed (`was`) is run under the new name, too ([`refresh`]): that name keeps
//! its subscription after the newer program has ended.
//!
//! What is paused is read with the living workers, under the same number: the queues of paused handlers are left out of
//! the claims, or claims pass over their new runs ([`ClaimQueues::begun_only`]), and a worker that follows a pause acknowledges it
//! ([`refresh`]). So are the sagas with limits: their queues are left to claims of their own ([`super::limits`]).
//!
//! The types that a saga reads are part of its definition. Those of its message and values are known at the start;
//! which replies it reads is known only when it does. A type of replies becomes part of the definition when this
//! program fails to decode a stored reply as that type ([`refresh::add_reply_type`]): then this worker has another
//! definition than those that may read it.

pub(super) mod recorded;
pub(super) mod refresh;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use scoop_core::RecordedStep;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::pause::PauseTarget;
use crate::model::program::Program;
use crate::saga::private::Pin;
use crate::saga::registry::{RunnableSaga, Sagas};
use crate::store::{
    ClaimQueues, LimitedQueue, LimitedSaga, LimitedTopics, LivingWorker, NewDefinition, NewStep, Registered,
    Store, Topology,
};
use crate::util::sync::{Mutex, lock};

/// What this worker knows of the topology: its own definitions, those of other workers, and all pauses and limits.
pub(super) struct TopologyCache {
    known: Mutex<Arc<Known>>,
    /// Held by the task that changes `known`, or looks.
    changing: tokio::sync::Mutex<()>,
    /// When this worker started, once it is registered.
    started_at: Mutex<Option<OffsetDateTime>>,
    view: Mutex<Arc<View>>,
    pub(super) owes_acknowledgement: AtomicBool,
    /// The steps of other definitions, by their numbers. They never change, unless the tables are emptied.
    recorded: Mutex<HashMap<i32, Arc<[RecordedStep]>>>,
}

/// The sagas of this program, under all their names.
pub(super) struct Known {
    sagas: Arc<Sagas>,
    own: BTreeMap<String, i32>,
    /// The same, in the order of [`Sagas::pairs`].
    numbers: Vec<i32>,
    reply_types: ReplyTypes,
}

/// The types of replies that have become part of definitions, by saga.
type ReplyTypes = BTreeMap<String, BTreeSet<String>>;

/// The current definitions, derived from those of all living workers.
#[derive(Default)]
struct View {
    queues: Arc<ClaimQueues>,
    limited: Arc<[LimitedQueue]>,
    limited_names: BTreeSet<String>,
    limited_topics: Arc<LimitedTopics>,
    /// The topics and names of the sagas of which another worker has the current definition.
    superseded: Vec<(String, String)>,
    /// The sagas of this program of which living workers have several definitions.
    contested: Vec<String>,
    /// The definitions that other workers have of pinned sagas of this program, with topics and names.
    pinned: BTreeSet<(String, String, i32)>,
    /// The topics and names of the sagas of this program that are paused, and of those of which new runs are: also the former.
    paused: Vec<(String, String)>,
    new_paused: Vec<(String, String)>,
}

/// The queues of a worker: those of sagas without a limit, and those of each saga with one.
struct QueuesByLimit {
    queues: ClaimQueues,
    limited: BTreeMap<String, ClaimQueues>,
}

impl QueuesByLimit {
    /// The queues under the limit of this saga, or under none.
    fn under(&mut self, limit: Option<&str>) -> &mut ClaimQueues {
        let Some(saga) = limit else { return &mut self.queues };
        let empty = || ClaimQueues { topology: self.queues.topology, ..ClaimQueues::default() };
        self.limited.entry(saga.to_owned()).or_insert_with(empty)
    }
}

impl TopologyCache {
    /// Records the definitions of this program.
    pub(super) async fn publish(store: &Store, sagas: Sagas) -> sqlx::Result<Self> {
        let known = Mutex::new(Arc::new(Known::publish(store, Arc::new(sagas), ReplyTypes::new()).await?));
        let (changing, started_at, view, owes_acknowledgement, recorded) = Default::default();
        Ok(Self { known, changing, started_at, view, owes_acknowledgement, recorded })
    }

    /// Records the definitions of this program again. They may get other numbers, as those of other programs may.
    pub(super) async fn publish_again(&self, store: &Store) -> sqlx::Result<()> {
        let _changing = self.changing.lock().await;
        let known = self.known();
        let known = Known::publish(store, known.sagas.clone(), known.reply_types.clone()).await?;
        lock(&self.recorded).clear();
        *lock(&self.known) = Arc::new(known);
        Ok(())
    }

    /// The sagas of this program, under all names that are known of them.
    pub(super) fn sagas(&self) -> Arc<Sagas> {
        lock(&self.known).sagas.clone()
    }

    pub(super) fn known(&self) -> Arc<Known> {
        lock(&self.known).clone()
    }

    /// The number of the definition of a saga of this program. None for the saga of a pending run that ends here since no living program
    /// has it.
    pub(super) fn known_number_of(&self, saga: &str) -> Option<i32> {
        lock(&self.known).own.get(saga).copied()
    }

    /// As [`Self::known_number_of`], with 0 for no number.
    pub(super) fn number_of(&self, saga: &str) -> i32 {
        self.known_number_of(saga).unwrap_or_default()
    }

    /// The registration of this worker.
    pub(super) fn registered<'a>(
        &self,
        known: &'a Known,
        worker: Uuid,
        program: &'a Program,
    ) -> Registered<'a> {
        let (topics, handlers) = known.sagas.keys();
        let (definitions, started_at) = (&known.numbers, *lock(&self.started_at));
        Registered { worker, topics, handlers, definitions, started_at, program }
    }

    /// This worker is registered, and counts as started at this time from now on.
    pub(super) fn started(&self, at: OffsetDateTime) {
        *lock(&self.started_at) = Some(at);
    }

    pub(super) fn queues(&self) -> Arc<ClaimQueues> {
        self.view().queues.clone()
    }

    /// The queues of sagas with limits that this worker may claim from.
    pub(super) fn limited(&self) -> Arc<[LimitedQueue]> {
        self.view().limited.clone()
    }

    pub(super) fn is_limited(&self, saga: &str) -> bool {
        self.view().limited_names.contains(saga)
    }

    /// Whether any saga of this program has a limit.
    pub(super) fn is_any_limited(&self) -> bool {
        !self.view().limited_names.is_empty()
    }

    /// The topics on which launches need capacity in the queue of a saga.
    pub(super) fn limited_topics(&self) -> Arc<LimitedTopics> {
        lock(&self.view).limited_topics.clone()
    }

    /// Whether another worker has the current definition of a saga of this program, for messages on this topic.
    pub(super) fn is_superseded(&self, topic: &str, saga: &str) -> bool {
        let view = self.view();
        view.superseded.iter().any(|(on, name)| on == topic && name == saga)
    }

    pub(super) fn is_paused(&self, topic: &str, saga: &str) -> bool {
        let view = self.view();
        view.paused.iter().any(|(on, name)| on == topic && name == saga)
    }

    /// Whether new runs of a saga of this program are paused, for messages on this topic.
    pub(super) fn is_paused_for_new(&self, topic: &str, saga: &str) -> bool {
        let view = self.view();
        view.new_paused.iter().any(|(on, name)| on == topic && name == saga)
    }

    /// Whether new runs of any saga of this program are paused.
    pub(super) fn is_any_paused(&self) -> bool {
        !self.view().new_paused.is_empty()
    }

    /// Whether a living worker has this definition of a pinned saga, for messages on this topic.
    pub(super) fn has_living(&self, topic: &str, saga: &str, definition: i32) -> bool {
        self.view().pinned.contains(&(topic.to_owned(), saga.to_owned(), definition))
    }

    /// Whether living workers have several definitions of a saga of this program.
    pub(super) fn is_contested(&self, saga: &str) -> bool {
        self.view().contested.iter().any(|name| name == saga)
    }

    fn view(&self) -> Arc<View> {
        lock(&self.view).clone()
    }

    fn derive_view(&self, worker: Uuid, topology: &Topology) {
        let Topology { living, paused, limited, limited_topics } = topology;
        let mine = self.known();
        let (topics, names) = mine.sagas.keys();
        let is_paused = |topic: &str, saga: &str| {
            paused.iter().any(|(paused, new_runs_only)| !new_runs_only && paused.covers(topic, saga))
        };
        let is_new_paused =
            |topic: &str, saga: &str| paused.iter().any(|(paused, _)| paused.covers(topic, saga));
        let covered = |is_covered: &dyn Fn(&str, &str) -> bool| {
            let keys = topics.iter().zip(names).filter(|(topic, saga)| is_covered(topic, saga));
            keys.map(|(topic, saga)| (topic.clone(), saga.clone())).collect()
        };
        let limited_topics = Arc::new(limited_topics.clone());
        let (all_paused, new_paused) = (covered(&is_paused), covered(&is_new_paused));
        let mut view = View { paused: all_paused, new_paused, limited_topics, ..View::default() };
        let limits = limited.iter().flat_map(|it| it.handlers.iter().map(move |name| (&**name, it)));
        let limits: HashMap<&str, &LimitedSaga> = limits.collect();
        let limit_of = |saga: &str| limits.get(saga).copied();
        view.limited_names = names.iter().filter(|name| limit_of(name).is_some()).cloned().collect();
        let Some(own) = living.iter().find(|living| living.id == worker) else {
            // This worker is presumed dead, and claims nothing until it has registered again.
            *lock(&self.view) = Arc::new(view);
            return;
        };
        // Of each saga the definition of the worker that started last, and whether there are others.
        let mut newest: HashMap<(&str, &str), (OffsetDateTime, Uuid, i32, bool)> = HashMap::new();
        for living in living {
            let sagas = living.topics.iter().zip(&living.handlers).zip(&living.definitions);
            for ((topic, handler), definition) in sagas {
                let this = (living.started_at, living.id, *definition);
                let newest = newest.entry((topic, handler)).or_insert((this.0, this.1, this.2, false));
                newest.3 |= newest.2 != *definition;
                if mine.sagas.find(topic, handler).is_some_and(|saga| saga.handler.pin() != Pin::None) {
                    view.pinned.insert((topic.clone(), handler.clone(), *definition));
                }
                if this > (newest.0, newest.1, newest.2) {
                    (newest.0, newest.1, newest.2) = this;
                }
            }
        }
        let mut queues = QueuesByLimit {
            queues: ClaimQueues { topology: own.topology, ..ClaimQueues::default() },
            limited: BTreeMap::new(),
        };
        for ((topic, definition), number) in topics.iter().zip(mine.sagas.definitions()).zip(&mine.numbers) {
            let newest = newest.get(&(topic.as_str(), &*definition.saga));
            let (current, is_contested) = newest.map_or((*number, false), |newest| (newest.2, newest.3));
            let limit = limit_of(&definition.saga).map(|limit| &*limit.saga);
            let is_claimed = !is_paused(topic, &definition.saga);
            let covers = |(paused, new_runs_only): &(PauseTarget, bool)| {
                *new_runs_only && paused.covers(topic, &definition.saga)
            };
            let begun_only = paused.iter().any(covers);
            if current == *number {
                if is_claimed {
                    queues.under(limit).push(topic, definition, *number, 0, begun_only);
                }
            } else {
                view.superseded.push((topic.clone(), definition.saga.to_string()));
            }
            if is_contested {
                view.contested.push(definition.saga.to_string());
                if is_claimed {
                    queues.under(limit).push(topic, definition, *number, *number, begun_only);
                }
            }
        }
        let queue = |(saga, queues)| {
            let of = limited.iter().find(|it| it.saga == saga)?.clone();
            Some(LimitedQueue { of, queues })
        };
        view.limited = queues.limited.into_iter().filter_map(queue).collect();
        view.queues = Arc::new(queues.queues);
        *lock(&self.view) = Arc::new(view);
    }
}

impl Known {
    async fn publish(store: &Store, sagas: Arc<Sagas>, reply_types: ReplyTypes) -> sqlx::Result<Self> {
        let of = |saga: &RunnableSaga| reply_types.get(&*saga.definition.saga);
        let definitions: Vec<_> = sagas.each().map(|saga| new_definition(saga, of(saga))).collect();
        let own: BTreeMap<_, _> = store.publish_definitions(&definitions).await?.into_iter().collect();
        let number = |definition: &NewDefinition| own.get(&definition.handler).copied();
        let numbers: Option<Vec<_>> = definitions.iter().map(number).collect();
        let numbers = numbers.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Self { sagas, own, numbers, reply_types })
    }

    /// The sagas that the row of this worker does not list with the definition at hand.
    fn unlisted(&self, row: &LivingWorker) -> Vec<String> {
        let in_row = row.topics.iter().zip(&row.handlers).zip(&row.definitions);
        let in_row: HashMap<_, _> = in_row.collect();
        let (topics, handlers) = self.sagas.keys();
        let own = topics.iter().zip(handlers).zip(&self.numbers);
        let unlisted: BTreeSet<_> = own
            .filter(|(saga, number)| in_row.get(saga) != Some(number))
            .map(|((_, handler), _)| handler)
            .collect();
        unlisted.into_iter().cloned().collect()
    }
}

/// A definition as it is recorded, with the types of replies that have become part of it.
fn new_definition(saga: &RunnableSaga, reply_types: Option<&BTreeSet<String>>) -> NewDefinition {
    let RunnableSaga { definition, handler, .. } = saga;
    let types: Vec<_> =
        handler.types().into_iter().chain(reply_types.into_iter().flatten().cloned()).collect();
    NewDefinition {
        handler: definition.saga.to_string(),
        fingerprint: definition.fingerprint(&types),
        steps: definition.recorded_steps().into_iter().map(|step| with_shape(step, &types)).collect(),
    }
}

/// The step, with the shape of its signal if it waits for one: it is among the types, under the name of the step.
fn with_shape(step: RecordedStep, types: &[String]) -> NewStep {
    let own = |text: &String| Some(text.strip_prefix(&*step.name)?.strip_prefix('\n')?.to_owned());
    let signal_shape = step.awaits.is_some().then(|| types.iter().find_map(own)).flatten();
    NewStep { step, signal_shape }
}
