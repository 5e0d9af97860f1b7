//! The topology: which sagas handle which topics, and which of their steps launch messages on which.

mod affected;
mod rendering;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::SystemTime;

use scoop_core::{RecordedStep, StepKind};
use serde::Serialize;

use scoop_runtime::RegisteredHandler;
use scoop_runtime::internal::{FetchExt as _, HandlerList, json, system_time, time_if_any};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;

use crate::OperateError;
use crate::database::Database;
use crate::statements::DEFINITION_LIST_CURRENT;

pub use self::affected::Affected;

/// The topology of a database: who handles and who launches what.
///
/// ```no_run
/// # use scoop_operate::OperateExt as _;
/// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_operate::OperateError> {
/// let topology = scoop.operate().topology().await?;
/// std::fs::write("topology.mmd", topology.to_mermaid()).expect("the folder can be written");
/// println!("{}", topology.affected_by("payments"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// The services that have handlers or living workers, by their names.
    pub services: Vec<TopologyService>,
    /// The handlers, by topic and saga. A saga with several topics has an element for each of them.
    pub handlers: Vec<TopologyHandler>,
    /// The topics on which steps launch messages, by saga, step and topic.
    pub launches: Vec<StepLaunch>,
}

/// A service: the programs that replace each other in a deployment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopologyService {
    /// Its name: [`Builder::service`](scoop_runtime::Builder::service).
    pub name: String,
    /// The builds of its living workers. During a deployment there are several.
    pub builds: Vec<TopologyBuild>,
}

/// A build of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopologyBuild {
    /// Its name: [`Builder::build`](scoop_runtime::Builder::build).
    pub id: String,
    /// The number of its living workers.
    pub workers: usize,
}

/// A saga that handles the messages of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopologyHandler {
    /// The topic.
    pub topic: String,
    /// The name of the saga.
    pub saga: String,
    /// The service that has started with it last; `None` if none has, or if it is retired.
    pub service: Option<String>,
    /// The names of its steps, by the definition of the living worker that started last, or else by the newest one.
    pub steps: Vec<String>,
    /// The number of living workers that have it.
    pub workers: usize,
    /// Whether it is retired: messages are not delivered to it any more.
    #[serde(rename = "retired")]
    pub is_retired: bool,
}

/// A topic on which a step of a saga launches messages. Its compensation, its child failure handler and its cleanup count as the
/// step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StepLaunch {
    /// The name of the saga.
    pub saga: String,
    /// The name of the step.
    pub step: String,
    /// The topic of the messages.
    pub topic: String,
    /// Whether the step declares such launches.
    #[serde(rename = "declared")]
    pub is_declared: bool,
    /// When a program launched the first such message; `None` if that is only declared.
    #[serde(serialize_with = "json::time")]
    pub seen_at: Option<SystemTime>,
}

impl Topology {
    pub(crate) async fn read(database: &Database) -> Result<Self, OperateError> {
        database.read_retrying("the topology was read", |_| read(database)).await
    }
}

async fn read(database: &Database) -> sqlx::Result<Topology> {
    let registered = database.list_handlers(&HandlerList::default()).await?;
    let former = database.former_handlers(None).await?;
    let mut workers: HashMap<(String, String), usize> = HashMap::new();
    let of_service = |handler: &RegisteredHandler| Some((handler.service.clone()?, BTreeMap::new()));
    let mut services: BTreeMap<String, BTreeMap<String, usize>> =
        registered.iter().filter_map(of_service).collect();
    for worker in database.list_workers().await?.into_iter().filter(|worker| worker.is_alive) {
        *services.entry(worker.service).or_default().entry(worker.build).or_default() += 1;
        for saga in worker.sagas {
            *workers.entry((saga.topic, saga.handler)).or_default() += 1;
        }
    }
    let steps: BTreeMap<_, _> = database.current_steps().await?.into_iter().collect();
    let handler = |topic: String, saga: String, service: Option<String>, is_retired| TopologyHandler {
        service,
        steps: steps.get(&saga).map_or_else(Vec::new, |steps| names(steps)),
        workers: workers.get(&(topic.clone(), saga.clone())).copied().unwrap_or_default(),
        topic,
        saga,
        is_retired,
    };
    let registered = registered.into_iter().map(|it| handler(it.topic, it.handler, it.service, false));
    let mut handlers: Vec<_> =
        registered.chain(former.into_iter().map(|it| handler(it.topic, it.handler, None, true))).collect();
    handlers.sort_by(|one, other| (&one.topic, &one.saga).cmp(&(&other.topic, &other.saga)));
    let is_current = |launch: &StepLaunch| {
        steps.get(&launch.saga).is_none_or(|steps| steps.iter().any(|step| step.name == launch.step))
    };
    let mut launches = database.step_launches().await?;
    launches.retain(is_current);
    let services = services.into_iter().map(|(name, builds)| TopologyService {
        name,
        builds: builds.into_iter().map(|(id, workers)| TopologyBuild { id, workers }).collect(),
    });
    Ok(Topology { services: services.collect(), handlers, launches })
}

impl Database {
    async fn current_steps(&self) -> sqlx::Result<Vec<(String, Vec<RecordedStep>)>> {
        let rows = sqlx::query(self.text(DEFINITION_LIST_CURRENT)).all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<_> {
            let Json(steps) = row.try_get(1)?;
            Ok((row.try_get(0)?, steps))
        };
        rows.iter().map(read).collect()
    }

    async fn step_launches(&self) -> sqlx::Result<Vec<StepLaunch>> {
        let rows = self.launches_query().all(self.sessions()).await?;
        let read = |row: &PgRow| -> sqlx::Result<StepLaunch> {
            Ok(StepLaunch {
                saga: row.try_get("saga")?,
                step: row.try_get("step")?,
                topic: row.try_get("topic")?,
                is_declared: row.try_get("declared")?,
                seen_at: time_if_any(row, "seen_at")?.map(system_time),
            })
        };
        rows.iter().map(read).collect()
    }
}

/// The names of the steps of the user.
fn names(steps: &[RecordedStep]) -> Vec<String> {
    let of_user = steps.iter().filter(|step| matches!(step.kind, StepKind::Code | StepKind::Decide));
    of_user.map(|step| step.name.clone()).collect()
}

impl Topology {
    /// The sagas to which messages on this topic are delivered.
    fn handlers_of<'a>(&'a self, topic: &'a str) -> impl Iterator<Item = &'a str> {
        self.handlers.iter().filter(move |it| it.topic == topic && !it.is_retired).map(|it| &*it.saga)
    }

    /// The topics on which a saga launches messages.
    fn launched_by<'a>(&'a self, saga: &'a str) -> BTreeSet<&'a str> {
        self.launches.iter().filter(|it| it.saga == saga).map(|it| &*it.topic).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handler, as `saga on topic`.
    pub(super) fn handler(text: &str) -> TopologyHandler {
        let (saga, topic) = text.split_once(" on ").unwrap();
        let (saga, is_retired) = saga.strip_prefix("retired ").map_or((saga, false), |saga| (saga, true));
        let (topic, service) =
            topic.split_once(" in ").map_or((topic, None), |(topic, name)| (topic, Some(name)));
        let (topic, saga, service) = (topic.to_owned(), saga.to_owned(), service.map(str::to_owned));
        TopologyHandler { topic, saga, service, steps: vec![], workers: 0, is_retired }
    }

    /// A launch, as `step of saga to topic`.
    pub(super) fn launch(text: &str) -> StepLaunch {
        let (step, rest) = text.split_once(" of ").unwrap();
        let (saga, topic) = rest.split_once(" to ").unwrap();
        let (step, is_declared) = step.strip_prefix("declared ").map_or((step, false), |step| (step, true));
        let seen_at = (!is_declared).then_some(SystemTime::UNIX_EPOCH);
        let (saga, step, topic) = (saga.to_owned(), step.to_owned(), topic.to_owned());
        StepLaunch { saga, step, topic, is_declared, seen_at }
    }

    #[test]
    fn topology_is_serialized_with_readable_times() {
        let topology = Topology {
            services: vec![TopologyService {
                name: "shop".into(),
                builds: vec![TopologyBuild { id: "2".into(), workers: 3 }],
            }],
            handlers: vec![handler("orders on placed in shop")],
            launches: vec![launch("ship of orders to parcels"), launch("declared ship of orders to letters")],
        };
        let json = serde_json::to_string(&topology).unwrap();
        assert_eq!(
            json,
            r#"{"services":[{"name":"shop","builds":[{"id":"2","workers":3}]}],"handlers":[{"topic":"placed","saga":"orders","service":"shop","steps":[],"workers":0,"retired":false}],"launches":[{"saga":"orders","step":"ship","topic":"parcels","declared":false,"seen_at":"1970-01-01T00:00:00.000Z"},{"saga":"orders","step":"ship","topic":"letters","declared":true,"seen_at":null}]}"#
        );
    }
}
