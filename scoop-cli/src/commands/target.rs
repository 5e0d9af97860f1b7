//! What a command is about: an id, or a topic with a unique key.

use scoop_operate::OperateExt as _;
use scoop_runtime::{HierarchyId, IdObject, PauseTarget, Scoop};
use uuid::Uuid;

use super::filters::FieldValue;
use super::names;
use crate::fault::Fault;

/// The maximum number of runs that are read for a field, and of hierarchies that are named in an error.
const FOUND_MAX: usize = 100;
const NAMED_MAX: usize = 5;

/// The object of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The id of a run, a hierarchy or a message
    #[arg(value_name = "ID", value_parser = id::<Uuid>, conflicts_with = "key")]
    id: Option<Uuid>,
    /// The unique key with which the message was launched, instead of an id
    #[arg(long, requires = "topic")]
    key: Option<String>,
    /// The topic of that message
    #[arg(long, requires = "key")]
    topic: Option<String>,
    /// The hierarchy whose runs are found by this value of a field, instead of an id; may be repeated
    #[arg(long = "where", value_name = "FIELD=VALUE", conflicts_with_all = ["id", "key"])]
    fields: Vec<FieldValue>,
}

/// Reads an id.
pub(super) fn id<T: From<Uuid>>(text: &str) -> Result<T, String> {
    let read = Uuid::try_parse(text);
    read.map(T::from).map_err(|_| {
        "this is no id; an id looks like 0197a6b2-6b1c-7d3e-9a53-3f1f7c1d2e4a, and `scoop runs` lists those of runs".into()
    })
}

/// The hierarchy of the message that was launched with this unique key.
pub(super) async fn by_key(scoop: &Scoop, topic: &str, key: &str) -> Result<Uuid, Fault> {
    match scoop.operate().runs().find_by_key(topic, key).await {
        Ok(found) => Ok(found.id().uuid()),
        Err(error) => {
            if error.is_not_found() && error.key_valid_until().is_none() {
                names::check(scoop, &PauseTarget::topic(topic)).await?;
            }
            Err(error.into())
        }
    }
}

/// The hierarchy whose runs are found by these values.
async fn by_fields(scoop: &Scoop, fields: &[FieldValue]) -> Result<Uuid, Fault> {
    let runs = fields.iter().fold(scoop.operate().runs().list(), |runs, field| field.of(runs));
    let page = runs.page(FOUND_MAX).await?;
    let mut hierarchies: Vec<_> = page.runs.iter().map(|run| run.hierarchy).collect();
    hierarchies.dedup();
    match &hierarchies[..] {
        [] => {
            for field in fields {
                field.check_name(scoop).await?;
            }
            Err(Fault::NotFound("no run is found by that".into()))
        }
        [only] => Ok(only.uuid()),
        several => {
            let ids: Vec<_> = several.iter().take(NAMED_MAX).map(ToString::to_string).collect();
            let more = if several.len() > ids.len() || page.next.is_some() { ", .." } else { "" };
            Err(Fault::Usage(format!(
                "several hierarchies are found by that; name one: {}{more}",
                ids.join(", ")
            )))
        }
    }
}

impl Target {
    /// The id; that of the hierarchy if a key was given.
    pub(crate) async fn id(&self, scoop: &Scoop) -> Result<Uuid, Fault> {
        match (self.id, &self.topic, &self.key) {
            (Some(id), ..) => Ok(id),
            (None, Some(topic), Some(key)) => by_key(scoop, topic, key).await,
            _ if !self.fields.is_empty() => by_fields(scoop, &self.fields).await,
            (None, ..) => Err(Fault::Usage(
                "an id is missing, or the topic and the unique key of a message: --topic TOPIC --key KEY, or a field: --where \
                 FIELD=VALUE; `scoop runs --ids` lists ids"
                    .into(),
            )),
        }
    }

    /// The hierarchy of it.
    pub(crate) async fn hierarchy(&self, scoop: &Scoop) -> Result<HierarchyId, Fault> {
        let id = self.id(scoop).await?;
        match scoop.find(id).await {
            Ok(found) => Ok(found.id()),
            Err(error) => match error.wrong_id() {
                Some((IdObject::Run { hierarchy, .. } | IdObject::Message { hierarchy, .. }, _)) => {
                    Ok(*hierarchy)
                }
                _ => Err(error.into()),
            },
        }
    }
}
