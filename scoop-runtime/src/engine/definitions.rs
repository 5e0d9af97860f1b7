//! Which runs this worker may claim, while other workers may have other definitions of the same sagas.
//!
//! Each worker lists the definitions of its sagas. Of several definitions of one saga, that of the worker which
//! started last is *current*: runs continue under it, so that a change reaches runs under way. A worker that has
//! another definition leaves the runs of the saga alone, but for those that the newer definitions refused and that
//! were reserved for its own (`run_set_aside.sql`). What a worker knows of the others has a number, which each
//! claim names: after another worker has started or ended, nothing is claimed before the worker has looked again.
//!
//! The types that a saga reads are part of its definition. Those of its message and values are known at the start; which
//! replies it reads is known only when it does. A type of replies becomes part of the definition when it does not read a
//! recorded reply ([`learn`]): then this worker has another definition than those that may read it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use scoop_core::RecordedStep;
use scoop_core::Run;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Engine;
use super::execute::Halt;
use crate::bug::{Bug, made};
use crate::registry::{Registry, RunnableSaga};
use crate::store::{Lanes, LivingWorker, PublishedDefinition, Registered, Store};
use crate::sync::{Mutex, lock};

/// The definitions of this program, and what is known of those of others.
pub(super) struct Definitions {
    /// The numbers of the definitions of the sagas, in the order of [`Registry::pairs`].
    numbers: Mutex<Arc<[i32]>>,
    /// Where in that order each saga is.
    places: BTreeMap<String, usize>,
    /// The types of replies that have become part of the definitions, by saga.
    learned: tokio::sync::Mutex<BTreeMap<String, BTreeSet<String>>>,
    /// When this worker started, once it is registered.
    started_at: Mutex<Option<OffsetDateTime>>,
    view: Mutex<Arc<View>>,
    /// The steps of other definitions, by their numbers. They never change.
    recorded: Mutex<HashMap<i32, Arc<[RecordedStep]>>>,
}

/// The current definitions, derived from those of all living workers.
#[derive(Default)]
struct View {
    lanes: Arc<Lanes>,
    /// The sagas of which another worker has the current definition.
    superseded: Vec<String>,
    /// The sagas of this program of which living workers have several definitions.
    contested: Vec<String>,
}

impl Definitions {
    /// Records the definitions of this program.
    pub(super) async fn publish(store: &Store, registry: &Registry) -> sqlx::Result<Self> {
        let definitions: Vec<_> = registry.sagas().map(|saga| published(saga, None)).collect();
        let own: BTreeMap<_, _> = store.publish_definitions(&definitions).await?.into_iter().collect();
        let number = |definition: &PublishedDefinition| own.get(&definition.handler).copied();
        let numbers: Option<Arc<[_]>> = definitions.iter().map(number).collect();
        let numbers = Mutex::new(numbers.ok_or(sqlx::Error::RowNotFound)?);
        let places = definitions.into_iter().map(|definition| definition.handler).zip(0..).collect();
        let (learned, started_at, view, recorded) = Default::default();
        Ok(Self { numbers, places, learned, started_at, view, recorded })
    }

    /// The numbers of the definitions of the sagas, in the order of [`Registry::pairs`].
    pub(super) fn numbers(&self) -> Arc<[i32]> {
        lock(&self.numbers).clone()
    }

    /// The sagas whose definition the worker has under another number than its row says.
    fn outdated(&self, own: &LivingWorker) -> Vec<String> {
        let numbers = self.numbers();
        let numbers = numbers.iter().zip(&own.definitions).zip(&own.handlers);
        numbers.filter(|((now, listed), _)| now != listed).map(|(_, handler)| handler.clone()).collect()
    }

    /// The number of the definition of a saga of this program.
    pub(super) fn number_of(&self, saga: &str) -> i32 {
        self.places.get(saga).and_then(|at| lock(&self.numbers).get(*at).copied()).unwrap_or_default()
    }

    /// The registration of this worker.
    pub(super) fn registered<'a>(
        &self,
        worker: Uuid,
        registry: &'a Registry,
        definitions: &'a [i32],
    ) -> Registered<'a> {
        let (topics, handlers) = registry.pairs();
        let started_at = *lock(&self.started_at);
        Registered { worker, topics, handlers, definitions, started_at }
    }

    /// This worker is registered, and counts as started at this time from now on.
    pub(super) fn started(&self, at: OffsetDateTime) {
        *lock(&self.started_at) = Some(at);
    }

    /// The queues that this worker may claim from.
    pub(super) fn lanes(&self) -> Arc<Lanes> {
        self.view().lanes.clone()
    }

    /// Whether another worker has the current definition of a saga of this program.
    pub(super) fn is_superseded(&self, saga: &str) -> bool {
        let view = self.view();
        !view.superseded.is_empty() && view.superseded.iter().any(|name| name == saga)
    }

    /// Whether living workers have several definitions of a saga of this program.
    pub(super) fn is_contested(&self, saga: &str) -> bool {
        let view = self.view();
        !made(Bug::ForgetOtherDefinitions) && view.contested.iter().any(|name| name == saga)
    }

    fn view(&self) -> Arc<View> {
        lock(&self.view).clone()
    }

    fn look(&self, worker: Uuid, registry: &Registry, living: &[LivingWorker]) {
        let mut view = View::default();
        let Some(own) = living.iter().find(|living| living.id == worker) else {
            // This worker is presumed dead, and claims nothing until it has registered again.
            *lock(&self.view) = Arc::new(view);
            return;
        };
        // Of each saga the definition of the worker that started last, and whether there are others.
        let mut known: HashMap<(&str, &str), (OffsetDateTime, Uuid, i32, bool)> = HashMap::new();
        for living in living {
            let sagas = living.topics.iter().zip(&living.handlers).zip(&living.definitions);
            for ((topic, handler), definition) in sagas {
                let newest = (living.started_at, living.id, *definition);
                let known = known.entry((topic, handler)).or_insert((newest.0, newest.1, newest.2, false));
                known.3 |= known.2 != *definition;
                if (newest > (known.0, known.1, known.2)) != made(Bug::OlderWins) {
                    (known.0, known.1, known.2) = newest;
                }
            }
        }
        let mut lanes = Lanes { topology: own.topology, ..Lanes::default() };
        let (topics, _) = registry.pairs();
        for ((topic, definition), number) in topics.iter().zip(registry.definitions()).zip(&own.definitions) {
            let known = known.get(&(topic.as_str(), &*definition.saga));
            let (current, is_contested) = known.map_or((*number, false), |known| (known.2, known.3));
            if current == *number {
                lanes.push(topic, (definition, *number), 0);
            } else {
                view.superseded.push(definition.saga.to_string());
            }
            if is_contested {
                view.contested.push(definition.saga.to_string());
                lanes.push(topic, (definition, *number), *number);
            }
        }
        view.lanes = Arc::new(lanes);
        *lock(&self.view) = Arc::new(view);
    }
}

/// Reads the living workers and their definitions.
pub(super) async fn look(engine: &Engine) -> sqlx::Result<()> {
    let mut living = engine.store.living_workers().await?;
    let own = living.iter().find(|living| living.id == engine.worker);
    let changed = own.map_or_else(Vec::new, |own| engine.definitions.outdated(own));
    if !changed.is_empty() {
        engine.store.redefine(engine.worker, &engine.definitions.numbers(), &changed).await?;
        living = engine.store.living_workers().await?;
    }
    engine.definitions.look(engine.worker, &engine.registry, &living);
    if !engine.definitions.view().contested.is_empty() && !made(Bug::ForgetOtherDefinitions) {
        // With outdated knowledge, this worker did not notify other workers of runs that only they may claim.
        engine.wakeups.others.notify_one();
    }
    Ok(())
}

/// A definition as it is recorded, with the types of replies that have become part of it.
fn published(saga: &RunnableSaga, learned: Option<&BTreeSet<String>>) -> PublishedDefinition {
    let RunnableSaga { definition, handler } = saga;
    let types: Vec<_> = handler.types().into_iter().chain(learned.into_iter().flatten().cloned()).collect();
    PublishedDefinition {
        handler: definition.saga.to_string(),
        fingerprint: definition.fingerprint(&types),
        steps: definition.recorded_steps(),
    }
}

/// Makes a type of replies part of the definition of a saga of this program.
pub(super) async fn learn(engine: &Engine, saga: &RunnableSaga, reply: &str) -> sqlx::Result<()> {
    let definitions = &engine.definitions;
    let name = saga.definition.saga.to_string();
    let mut learned = definitions.learned.lock().await;
    let mut of_saga = learned.get(&name).cloned().unwrap_or_default();
    if of_saga.insert(reply.to_owned()) {
        let published = engine.store.publish_definitions(&[published(saga, Some(&of_saga))]).await?;
        if let (Some((_, number)), Some(at)) = (published.first(), definitions.places.get(&name)) {
            let mut numbers = lock(&definitions.numbers);
            *numbers =
                numbers.iter().enumerate().map(|(i, it)| if i == *at { *number } else { *it }).collect();
        }
        learned.insert(name, of_saga);
    }
    // What it learned before may not have reached the database.
    look(engine).await?;
    engine.look_up();
    Ok(())
}

/// The steps of the definition under which the newest step of a run completed, unless that is the one at hand.
pub(super) async fn recorded(
    engine: &Engine,
    saga: &RunnableSaga,
    definition: Option<i32>,
) -> Result<Option<Arc<[RecordedStep]>>, Halt> {
    let Some(definition) =
        definition.filter(|definition| *definition != engine.definitions.number_of(&saga.definition.saga))
    else {
        return Ok(None);
    };
    if let Some(steps) = lock(&engine.definitions.recorded).get(&definition) {
        return Ok(Some(steps.clone()));
    }
    let name = &saga.definition.saga;
    let steps = engine.store.definition_steps(definition, name).await.map_err(|error| {
        Halt::Infrastructure(
            format!("definition {definition} of saga `{name}` could not be read: {error}").into(),
        )
    })?;
    let steps: Arc<[RecordedStep]> = steps
        .ok_or_else(|| {
            Halt::Stuck(format!("there is no record of definition {definition} of saga `{name}`").into())
        })?
        .into();
    lock(&engine.definitions.recorded).insert(definition, steps.clone());
    Ok(Some(steps))
}

/// A deliberate bug: the position of the newest step is looked up in the program's own definition.
pub(super) fn by_index(saga: &RunnableSaga, run: &mut Run) {
    let recorded = run.recorded.take();
    let (Some(recorded), Some(last)) = (recorded, &mut run.last) else {
        return;
    };
    let same = |step: &str| {
        let at = recorded.iter().position(|known| known.name == *step)?;
        Some(saga.definition.steps.get(at)?.name.to_string())
    };
    let renamed = same(&last.step);
    last.step = renamed.or(saga.definition.last_step().map(str::to_owned)).unwrap_or_default();
    last.jump = last.jump.as_deref().and_then(same);
}
