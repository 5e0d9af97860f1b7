//! The sagas of this program: those that the attributes registered at link time, completed with their dependencies
//! and checked before anything starts.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use scoop_core::{CodedError, Definition, NameKind, NamedType, Schedule};
use uuid::Uuid;

use super::launched_topics::KnownLaunches;
use crate::model::schedule::Timetable;
use crate::model::subscribed_saga::{Renamed, SubscribedSaga};
use crate::model::tick::Tick;
use crate::saga::{EntityRegistration, Handler, MessageType, Registration, Saga};
use crate::store::{JoinSpec, SagaLimit};
use crate::telemetry::metrics::StepTimes;
use crate::{SetupError, Subscribed, telemetry};

#[derive(Default)]
pub(crate) struct Provided(Vec<(TypeId, &'static str, Arc<dyn Handler>)>);

impl Provided {
    /// Adds a provided saga. Two of one type are a mistake, which [`Registry::collect`] finds.
    pub(crate) fn add<S: Saga>(&mut self, saga: S) {
        self.0.push((TypeId::of::<S>(), std::any::type_name::<S>(), Arc::new(saga)));
    }

    fn find(&self, id: TypeId) -> Option<Arc<dyn Handler>> {
        self.0.iter().find(|(of, ..)| *of == id).map(|(.., saga)| saga.clone())
    }
}

/// The sagas of a program, with their subscriptions and schedules.
pub(crate) struct Registry {
    pub(crate) sagas: Sagas,
    pub(crate) subscriptions: Vec<SubscribedSaga>,
    pub(crate) schedules: Vec<Scheduled>,
    pub(crate) joins: Vec<Arc<JoinSpec>>,
    pub(crate) limits: Vec<SagaLimit>,
    pub(crate) packages: BTreeSet<&'static str>,
}

/// The sagas that a program runs, by topic and name: under their own names, their former ones, and those that newer
/// programs have given them.
#[derive(Clone)]
pub(crate) struct Sagas {
    by_name: BTreeMap<(String, String), Arc<RunnableSaga>>,
    topics: Vec<String>,
    names: Vec<String>,
}

pub(crate) struct Scheduled {
    pub(crate) topic: String,
    pub(crate) name: String,
    pub(crate) schedule: Schedule,
    pub(crate) timetable: Timetable,
}

pub(crate) struct RunnableSaga {
    pub(crate) definition: Definition,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) times: StepTimes,
    pub(super) launches: KnownLaunches,
}

impl Registry {
    /// Collects the sagas of the linked program; only those of `only`, if that is given.
    ///
    /// All mistakes of the program are reported at once.
    pub(crate) fn collect(
        provided: &Provided,
        only: Option<&[TypeId]>,
        expected: &[String],
    ) -> Result<Self, Vec<SetupError>> {
        let chosen = |id: TypeId| only.is_none_or(|only| only.contains(&id));
        let mut linked: Vec<_> = inventory::iter::<Registration>()
            .filter(|registration| chosen((registration.saga_type)().0))
            .collect();
        linked.sort_by_key(|registration| (registration.saga_type)().1);

        let mut errors = check_names(&linked);
        errors.extend(check_topics(&linked));
        errors.extend(check_provided(&linked, provided));
        errors.extend(check_expected(&linked, expected));
        errors.extend(check_codes());
        errors.extend(check_types(NamedType::all()));
        errors.extend(check_entities(inventory::iter::<EntityRegistration>()));
        let schedules = schedules(&linked, &mut errors);
        let (mut sagas, mut subscriptions, mut joins) = (BTreeMap::new(), vec![], vec![]);
        let mut limits = vec![];
        let packages = linked.iter().map(|registration| registration.package).collect();
        for registration in linked {
            let (id, type_name) = (registration.saga_type)();
            let Some(handler) = provided.find(id).or_else(registration.default) else {
                let name = registration.definition().saga.to_string();
                errors.push(SetupError::NotProvided { name, type_name });
                continue;
            };
            let was: Vec<_> = (registration.former_names)().iter().map(|was| (*was).to_owned()).collect();
            let saga = registration.definition().saga.into_owned();
            limits.push(SagaLimit { saga, was: was.clone(), limits: (registration.limits)() });
            let mut add = |definition: Definition, was: Vec<String>, settings, handler: &Arc<dyn Handler>| {
                let former = was.iter().map(|was| under_name(&definition, was));
                for definition in former.chain([definition.clone()]) {
                    let runnable = RunnableSaga::new(definition, handler.clone());
                    sagas.insert(runnable.key(), Arc::new(runnable));
                }
                subscriptions.push(SubscribedSaga::new(&definition, was, settings));
            };
            let events = handler.decisions().map(|decisions| decisions.entity.applications());
            let redacted = events.into_iter().flatten().flat_map(|event| event.redacted());
            let redacted: Vec<_> = redacted.copied().collect();
            for ((definition, _), mut settings) in
                registration.topics().into_iter().zip(registration.settings())
            {
                settings.redacted.extend(&redacted);
                add(definition, was.clone(), settings, &handler);
            }
            if let Some(collector) = registration.collector() {
                joins.push(collector.spec());
                let settings = collector.settings();
                let collector: Arc<dyn Handler> = Arc::new(collector);
                let collectors = registration.collectors(&registration.definition().saga);
                for ((definition, _), settings) in collectors.into_iter().zip(settings) {
                    add(definition, registration.collectors_were(), settings, &collector);
                }
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        if sagas.is_empty() {
            telemetry::no_sagas();
        }
        Ok(Self { sagas: Sagas::new(sagas), subscriptions, schedules, joins, limits, packages })
    }
}

impl Sagas {
    /// The commands whose entities are in tables of the user, as the mistake of a program in memory.
    #[cfg(feature = "in-memory")]
    pub(crate) fn in_tables(&self) -> impl Iterator<Item = SetupError> {
        self.by_name.values().filter_map(|saga| {
            let decisions = saga.handler.decisions().filter(|decisions| decisions.table.is_some())?;
            let (entity, saga) = (decisions.entity.name().to_owned(), saga.definition.saga.to_string());
            Some(SetupError::TableInMemory { entity, saga })
        })
    }

    fn new(by_name: BTreeMap<(String, String), Arc<RunnableSaga>>) -> Self {
        let (topics, names) = by_name.keys().cloned().unzip();
        Self { by_name, topics, names }
    }

    /// Runs sagas under these names, too. Returns the names that are new.
    pub(crate) fn add_names(&mut self, renamed: Vec<Renamed>) -> Vec<Renamed> {
        let mut added = vec![];
        for renamed in renamed {
            let Renamed { topic, name, own_name } = &renamed;
            let Some(saga) = self.find(topic, own_name).cloned() else { continue };
            // The names of sagas are unique in a program, also across topics.
            let is_other =
                |it: &RunnableSaga| it.definition.saga == *name && !Arc::ptr_eq(&it.handler, &saga.handler);
            if self.find(topic, name).is_none() && !self.each().any(is_other) {
                let definition = under_name(&saga.definition, name);
                let runnable = RunnableSaga::new(definition, saga.handler.clone());
                self.by_name.insert(runnable.key(), Arc::new(runnable));
                added.push(renamed);
            }
        }
        *self = Self::new(std::mem::take(&mut self.by_name));
        added
    }

    pub(crate) fn fingerprint(&self) -> String {
        let mut text = String::new();
        for RunnableSaga { definition, handler, .. } in self.each() {
            let (topic, saga, types) = (&definition.topic, &definition.saga, handler.types());
            let _ = writeln!(text, "{topic:?} {saga:?} {}", definition.fingerprint(&types));
        }
        Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string().split_off(20)
    }

    /// Topics and names of all sagas, pair by pair; with their other names.
    pub(crate) fn keys(&self) -> (&[String], &[String]) {
        (&self.topics, &self.names)
    }

    /// The definitions of all sagas, in the order of [`Self::pairs`].
    pub(crate) fn definitions(&self) -> impl Iterator<Item = &Definition> {
        self.each().map(|saga| &saga.definition)
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &RunnableSaga> {
        self.by_name.values().map(|saga| &**saga)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| own == name)
    }

    pub(crate) fn handlers_of(&self, topic: &str) -> impl Iterator<Item = &str> {
        let from = (topic.to_owned(), String::new());
        self.by_name
            .range(from..)
            .map(|((of, name), _)| (of, name))
            .take_while(move |(of, _)| *of == topic)
            .map(|(_, name)| &**name)
    }

    pub(crate) fn find(&self, topic: &str, name: &str) -> Option<&Arc<RunnableSaga>> {
        self.by_name.get(&(topic.to_owned(), name.to_owned()))
    }
}

impl RunnableSaga {
    pub(super) fn new(definition: Definition, handler: Arc<dyn Handler>) -> Self {
        Self { definition, handler, times: StepTimes::default(), launches: KnownLaunches::default() }
    }

    fn key(&self) -> (String, String) {
        (self.definition.topic.to_string(), self.definition.saga.to_string())
    }
}

/// The definition for runs that are stored under another name of the saga.
fn under_name(definition: &Definition, name: &str) -> Definition {
    Definition { saga: name.to_owned().into(), ..definition.clone() }
}

/// Finds names that cannot be stored, and names of several sagas.
fn check_names(linked: &[&Registration]) -> Vec<SetupError> {
    let mut errors = vec![];
    let mut types: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for registration in linked {
        let collectors = registration.collectors(&registration.definition().saga);
        let all = registration.topics().into_iter().chain(collectors);
        let mut mistakes: Vec<_> = all.filter_map(|(it, _)| it.check().err()).flatten().collect();
        mistakes.dedup();
        errors.extend(mistakes.into_iter().map(SetupError::Name));
        let definition = registration.definition();
        for name in (registration.former_names)().iter().copied().chain([&*definition.saga]) {
            types.entry(name.to_owned()).or_default().push((registration.saga_type)().1);
        }
    }
    let repeated = types.into_iter().filter(|(_, types)| types.len() > 1);
    errors
        .extend(repeated.map(|(name, types)| SetupError::DuplicateSagaName { name, types: quoted(&types) }));
    errors
}

/// Finds topics whose handlers expect different messages.
fn check_topics(linked: &[&Registration]) -> Vec<SetupError> {
    let mut types: BTreeMap<String, Vec<(TypeId, &'static str)>> = BTreeMap::new();
    let messages = linked.iter().flat_map(|registration| {
        let collectors = registration.collectors(&registration.definition().saga);
        registration.topics().into_iter().chain(collectors)
    });
    for (definition, message) in messages {
        let known = types.entry(definition.topic.to_string()).or_default();
        if !known.contains(&message) {
            known.push(message);
        }
    }
    let contested = types.into_iter().filter(|(_, types)| types.len() > 1);
    let name = |types: Vec<(TypeId, &'static str)>| {
        quoted(&types.into_iter().map(|(_, name)| name).collect::<Vec<_>>())
    };
    contested.map(|(topic, types)| SetupError::ConflictingTopicTypes { topic, types: name(types) }).collect()
}

/// Finds expected sagas that the program does not have.
fn check_expected(linked: &[&Registration], expected: &[String]) -> Vec<SetupError> {
    let names: BTreeSet<_> = linked.iter().map(|registration| registration.definition().saga).collect();
    let missing = expected.iter().filter(|name| !names.contains(name.as_str()));
    let near = |name: &str| Subscribed::near(name, names.iter().map(|name| &**name)).near;
    missing.map(|name| SetupError::MissingSaga { name: name.clone(), near: near(name) }).collect()
}

/// Finds names of several context keys or signals, in all linked code.
fn check_types<'a>(linked: impl IntoIterator<Item = &'a NamedType>) -> Vec<SetupError> {
    let mut types: BTreeMap<(NameKind, &'static str), Vec<MessageType>> = BTreeMap::new();
    for named in linked {
        let known = types.entry((named.kind, named.name)).or_default();
        let rust_type = (named.rust_type)();
        if !known.contains(&rust_type) {
            known.push(rust_type);
        }
    }
    let repeated = types.into_iter().filter(|(_, types)| types.len() > 1);
    let error = |((kind, name), types): ((NameKind, &'static str), Vec<MessageType>)| {
        let mut types: Vec<_> = types.into_iter().map(|(_, type_name)| type_name).collect();
        types.sort_unstable();
        let (name, types) = (name.to_owned(), quoted(&types));
        match kind {
            NameKind::ContextKey => SetupError::DuplicateContextKey { key: name, types },
            NameKind::Signal => SetupError::DuplicateSignalName { name, types },
            NameKind::WaitStrategy => SetupError::DuplicateWaitStrategy { name, types },
        }
    };
    repeated.map(error).collect()
}

/// Finds codes of several types of errors, in all linked sagas.
fn check_codes() -> Vec<SetupError> {
    let mut types: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for coded in CodedError::all() {
        types.entry(coded.code().to_owned()).or_default().push(coded.type_name());
    }
    let repeated = types.into_iter().filter(|(_, types)| types.len() > 1);
    let error = |(code, mut types): (String, Vec<&'static str>)| {
        types.sort_unstable();
        SetupError::DuplicateFailureCode { code, types: quoted(&types) }
    };
    repeated.map(error).collect()
}

/// Finds names of several entities, and topics of several events of one entity.
fn check_entities<'a>(linked: impl IntoIterator<Item = &'a EntityRegistration>) -> Vec<SetupError> {
    let mut types: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut errors = vec![];
    for entity in linked {
        let [entity_type, key_type] = (entity.types)();
        types.entry(entity.name).or_default().push(format!("`{entity_type}` (keys: `{key_type}`)"));
        let mut events: BTreeMap<&'static str, Vec<&'static str>> = BTreeMap::new();
        for application in (entity.applications)() {
            events.entry(application.topic()).or_default().push(application.event());
        }
        let repeated = events.into_iter().filter(|(_, events)| events.len() > 1);
        errors.extend(repeated.map(|(topic, events)| SetupError::DuplicateApplication {
            name: entity.name.to_owned(),
            topic: topic.to_owned(),
            types: quoted(&events),
        }));
    }
    let repeated = types.into_iter().filter(|(_, types)| types.len() > 1);
    errors.extend(repeated.map(|(name, mut types)| {
        types.sort_unstable();
        SetupError::DuplicateEntityName { name: name.to_owned(), types: types.join(", ") }
    }));
    errors
}

/// The scheduled sagas. The attributes have checked most of this, but not a handwritten `impl Saga`
/// or a renamed import of `Tick`.
fn schedules(linked: &[&Registration], errors: &mut Vec<SetupError>) -> Vec<Scheduled> {
    let mut schedules = vec![];
    for registration in linked {
        let Definition { saga, topic, .. } = registration.definition();
        let is_tick = |(_, (id, _)): &(Definition, MessageType)| *id == TypeId::of::<Tick>();
        let messages = registration.topics();
        let handles_ticks = messages.iter().all(is_tick);
        let why = match (registration.schedule)() {
            None if messages.iter().any(is_tick) => {
                "no program launches a `Tick`; write `#[saga(every = \"1h\")]`".into()
            }
            None => continue,
            Some(_) if !handles_ticks => "it does not handle `Tick`".into(),
            Some(schedule) => match Timetable::new(&schedule) {
                Ok(timetable) => {
                    let (topic, name) = (topic.into(), saga.into());
                    schedules.push(Scheduled { topic, name, schedule, timetable });
                    continue;
                }
                Err(unfit) => unfit.to_string(),
            },
        };
        errors.push(SetupError::Schedule { name: saga.into(), why });
    }
    schedules
}

/// Finds provided values that are no registered saga, and types of which several values were provided.
fn check_provided(linked: &[&Registration], provided: &Provided) -> Vec<SetupError> {
    let mut types: Vec<(TypeId, &'static str, usize)> = vec![];
    for (id, type_name, _) in &provided.0 {
        match types.iter_mut().find(|(known, ..)| known == id) {
            Some((.., count)) => *count += 1,
            None => types.push((*id, type_name, 1)),
        }
    }
    let mut errors = vec![];
    for (id, type_name, count) in types {
        if !linked.iter().any(|registration| (registration.saga_type)().0 == id) {
            errors.push(SetupError::NotASaga { type_name });
        }
        if count > 1 {
            errors.push(SetupError::ProvidedTwice { type_name, count });
        }
    }
    errors
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use scoop_core::{Application, Applies, ContextKey, Entity, Message, Signal};
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Added;

    impl Message for Added {
        const TOPIC: &'static str = "added";
        type Reply = ();
    }

    #[derive(Serialize, Deserialize)]
    struct AddedToo;

    impl Message for AddedToo {
        const TOPIC: &'static str = "added";
        type Reply = ();
    }

    #[derive(Default, Serialize, Deserialize)]
    struct Stock;

    #[derive(Default, Serialize, Deserialize)]
    struct Store;

    impl Applies<Added> for Stock {
        fn apply(&mut self, _: &Added) {}
    }

    impl Applies<AddedToo> for Stock {
        fn apply(&mut self, _: &AddedToo) {}
    }

    impl Entity for Stock {
        const NAME: &'static str = "stock";
        type Key = u8;

        fn applications() -> Vec<Application> {
            vec![Application::of::<Self, Added>(), Application::of::<Self, AddedToo>()]
        }
    }

    impl Entity for Store {
        const NAME: &'static str = "stock";
        type Key = String;

        fn applications() -> Vec<Application> {
            vec![]
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Paid;

    mod another {
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(super) struct Paid;
    }

    macro_rules! named_alike {
        ($($type:ty),*) => {
            $(
                impl ContextKey for $type {
                    const KEY: &'static str = "paid";
                }

                impl Signal for $type {
                    const NAME: &'static str = "paid";
                    const RETENTION: Duration = Duration::ZERO;
                }
            )*
        };
    }

    named_alike!(Paid, another::Paid);

    #[test]
    fn types_with_one_name_are_mistakes_if_they_are_of_one_kind() {
        let (key, signal) = (NamedType::context_key::<Paid>, NamedType::signal::<Paid>);
        assert!(check_types(&[key(), signal(), key()]).is_empty(), "a type may be registered twice");
        let others = [NamedType::context_key::<another::Paid>(), NamedType::signal::<another::Paid>()];
        let mistakes = check_types([key(), signal()].iter().chain(&others));
        let texts: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        let [of_key, of_signal] = &*texts else { panic!("{texts:?}") };
        assert!(of_key.starts_with("two types have the context key `paid`: "), "{of_key}");
        assert!(of_signal.starts_with("two signals are named `paid`: "), "{of_signal}");
        for text in &texts {
            assert!(text.contains("::tests::Paid`") && text.contains("::another::Paid`"), "{text}");
        }
    }

    #[test]
    fn entities_with_one_name_and_events_with_one_topic_are_mistakes() {
        let linked = [EntityRegistration::new::<Store>(), EntityRegistration::new::<Stock>()];
        let mistakes = check_entities(&linked);
        let texts: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
        let [topic, name] = &*texts else { panic!("{texts:?}") };
        assert!(topic.contains("several events with the topic `added`"), "{topic}");
        assert!(topic.contains("Added`") && topic.contains("AddedToo`"), "{topic}");
        assert!(name.starts_with("two entities are named `stock`"), "{name}");
        assert!(
            name.contains("::Stock` (keys: `u8`)") && name.contains("::Store` (keys: `alloc::"),
            "{name}"
        );
    }
}
