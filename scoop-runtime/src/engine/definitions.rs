//! Which runs this worker may claim, while other workers may have other definitions of the same sagas.
//!
//! Each worker lists the definitions of its sagas. Of several definitions of one saga, that of the worker which
//! started last is *current*: runs continue under it, so that a change reaches runs under way. A worker with
//! another definition claims only runs that are reserved for its definition, because newer ones refused them
//! (`run_set_aside.sql`). What a worker knows of the others has a number, which each
//! claim names: after another worker has started or ended, nothing is claimed before the worker has looked again.
//!
//! A saga that a newer program has renamed (`was`) is run under the new name, too ([`add_names`]): that name keeps
//! its subscription after the newer program has ended.
//!
//! The types that a saga reads are part of its definition. Those of its message and values are known at the start;
//! which replies it reads is known only when it does. A type of replies becomes part of the definition when this
//! program fails to decode a stored reply as that type ([`add_reply_type`]): then this worker has another definition
//! than those that may read it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use scoop_core::RecordedStep;
use scoop_core::Run;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Engine;
use super::execute::Halt;
use crate::bug::{Bug, made};
use crate::registry::{Renamed, RunnableSaga, Sagas};
use crate::store::{Lanes, LivingWorker, PublishedDefinition, Registered, Store};
use crate::sync::{Mutex, lock};
use crate::telemetry;

/// The definitions of this program, and what is known of those of others.
pub(super) struct Definitions {
    known: Mutex<Arc<Known>>,
    /// Held by the task that changes `known`, or looks.
    changing: tokio::sync::Mutex<()>,
    /// When this worker started, once it is registered.
    started_at: Mutex<Option<OffsetDateTime>>,
    view: Mutex<Arc<View>>,
    /// The steps of other definitions, by their numbers. They never change.
    recorded: Mutex<HashMap<i32, Arc<[RecordedStep]>>>,
}

/// The sagas of this program, under all their names.
pub(super) struct Known {
    sagas: Arc<Sagas>,
    /// The number of the definition of each saga, by its name.
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
    lanes: Arc<Lanes>,
    /// The sagas of which another worker has the current definition.
    superseded: Vec<String>,
    /// The sagas of this program of which living workers have several definitions.
    contested: Vec<String>,
}

impl Definitions {
    /// Records the definitions of this program.
    pub(super) async fn publish(store: &Store, sagas: Sagas) -> sqlx::Result<Self> {
        let known = Mutex::new(Arc::new(Known::publish(store, Arc::new(sagas), ReplyTypes::new()).await?));
        let (changing, started_at, view, recorded) = Default::default();
        Ok(Self { known, changing, started_at, view, recorded })
    }

    /// The sagas of this program, under all names that are known of them.
    pub(super) fn sagas(&self) -> Arc<Sagas> {
        lock(&self.known).sagas.clone()
    }

    pub(super) fn known(&self) -> Arc<Known> {
        lock(&self.known).clone()
    }

    /// The number of the definition of a saga of this program.
    pub(super) fn number_of(&self, saga: &str) -> i32 {
        lock(&self.known).own.get(saga).copied().unwrap_or_default()
    }

    /// The registration of this worker.
    pub(super) fn registered<'a>(&self, known: &'a Known, worker: Uuid) -> Registered<'a> {
        let (topics, handlers) = known.sagas.pairs();
        let (definitions, started_at) = (&known.numbers, *lock(&self.started_at));
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

    fn derive_view(&self, worker: Uuid, living: &[LivingWorker]) {
        let mine = self.known();
        let mut view = View::default();
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
                if (this > (newest.0, newest.1, newest.2)) != made(Bug::OlderWins) {
                    (newest.0, newest.1, newest.2) = this;
                }
            }
        }
        let mut lanes = Lanes { topology: own.topology, ..Lanes::default() };
        let (topics, _) = mine.sagas.pairs();
        for ((topic, definition), number) in topics.iter().zip(mine.sagas.definitions()).zip(&mine.numbers) {
            let newest = newest.get(&(topic.as_str(), &*definition.saga));
            let (current, is_contested) = newest.map_or((*number, false), |newest| (newest.2, newest.3));
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

impl Known {
    async fn publish(store: &Store, sagas: Arc<Sagas>, reply_types: ReplyTypes) -> sqlx::Result<Self> {
        let of = |saga: &RunnableSaga| reply_types.get(&*saga.definition.saga);
        let definitions: Vec<_> = sagas.each().map(|saga| published(saga, of(saga))).collect();
        let own: BTreeMap<_, _> = store.publish_definitions(&definitions).await?.into_iter().collect();
        let number = |definition: &PublishedDefinition| own.get(&definition.handler).copied();
        let numbers: Option<Vec<_>> = definitions.iter().map(number).collect();
        let numbers = numbers.ok_or(sqlx::Error::RowNotFound)?;
        Ok(Self { sagas, own, numbers, reply_types })
    }

    /// The sagas that the row of this worker does not list with the definition at hand.
    fn unlisted(&self, row: &LivingWorker) -> Vec<String> {
        let listed: BTreeMap<_, _> = row.handlers.iter().zip(&row.definitions).collect();
        let unlisted = self.own.iter().filter(|(handler, number)| listed.get(handler) != Some(number));
        unlisted.map(|(handler, _)| handler.clone()).collect()
    }
}

/// A definition as it is recorded, with the types of replies that have become part of it.
fn published(saga: &RunnableSaga, reply_types: Option<&BTreeSet<String>>) -> PublishedDefinition {
    let RunnableSaga { definition, handler } = saga;
    let types: Vec<_> =
        handler.types().into_iter().chain(reply_types.into_iter().flatten().cloned()).collect();
    PublishedDefinition {
        handler: definition.saga.to_string(),
        fingerprint: definition.fingerprint(&types),
        steps: definition.recorded_steps(),
    }
}

/// Reads the living workers and their definitions, and the names that newer programs have given the sagas of this one.
pub(super) async fn look(engine: &Engine) -> sqlx::Result<()> {
    let _changing = engine.definitions.changing.lock().await;
    add_names(engine).await?;
    enlist_and_look(engine).await
}

/// Makes a type of replies part of the definition of a saga of this program.
pub(super) async fn add_reply_type(
    engine: &Engine,
    saga: &RunnableSaga,
    reply_type: &str,
) -> sqlx::Result<()> {
    let _changing = engine.definitions.changing.lock().await;
    let known = engine.definitions.known();
    let mut reply_types = known.reply_types.clone();
    if reply_types.entry(saga.definition.saga.to_string()).or_default().insert(reply_type.to_owned()) {
        let known = Known::publish(&engine.store, known.sagas.clone(), reply_types).await?;
        *lock(&engine.definitions.known) = Arc::new(known);
    }
    // A type that was added before may not have reached the database.
    enlist_and_look(engine).await?;
    engine.look_up();
    Ok(())
}

/// Has this worker run its sagas under the names that newer programs have given them.
async fn add_names(engine: &Engine) -> sqlx::Result<()> {
    let renamed = engine.store.renamed_sagas(&engine.subscriptions).await?;
    let known = engine.definitions.known();
    let mut sagas = Sagas::clone(&known.sagas);
    let added = sagas.add_names(renamed);
    if added.is_empty() {
        return Ok(());
    }
    let known = Known::publish(&engine.store, Arc::new(sagas), known.reply_types.clone()).await?;
    *lock(&engine.definitions.known) = Arc::new(known);
    for Renamed { name, own_name, .. } in added {
        telemetry::saga_renamed(engine.worker, &own_name, &name);
    }
    Ok(())
}

/// Lists what has changed of the sagas since this worker was registered, and derives which definitions are current.
async fn enlist_and_look(engine: &Engine) -> sqlx::Result<()> {
    let (known, mut living) = (engine.definitions.known(), engine.store.living_workers().await?);
    let own = living.iter().find(|living| living.id == engine.worker);
    let changed = own.map_or_else(Vec::new, |own| known.unlisted(own));
    if !changed.is_empty() {
        let registered = engine.definitions.registered(&known, engine.worker);
        engine.store.enlist(registered, &changed).await?;
        living = engine.store.living_workers().await?;
    }
    engine.definitions.derive_view(engine.worker, &living);
    if !engine.definitions.view().contested.is_empty() && !made(Bug::ForgetOtherDefinitions) {
        // With outdated knowledge, this worker did not notify other workers of runs that only they may claim.
        engine.wakeups.others.notify_one();
    }
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
