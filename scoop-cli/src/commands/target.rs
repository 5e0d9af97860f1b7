//! What a command is about: an id, or a topic with a unique key.

use scoop_operate::OperateExt as _;
use scoop_runtime::{HierarchyId, IdObject, PauseTarget, RuntimeError, Scoop};
use uuid::Uuid;

use super::names;
use crate::fault::Fault;

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
            if let RuntimeError::NoSuchKey { .. } = error {
                names::check(scoop, &PauseTarget::topic(topic)).await?;
            }
            Err(error.into())
        }
    }
}

impl Target {
    /// The id; that of the hierarchy if a key was given.
    pub(crate) async fn id(&self, scoop: &Scoop) -> Result<Uuid, Fault> {
        match (self.id, &self.topic, &self.key) {
            (Some(id), ..) => Ok(id),
            (None, Some(topic), Some(key)) => by_key(scoop, topic, key).await,
            (None, ..) => Err(Fault::Usage(
                "an id is missing, or the topic and the unique key of a message: --topic TOPIC --key KEY; `scoop runs` lists \
                 ids"
                    .into(),
            )),
        }
    }

    /// The hierarchy of it.
    pub(crate) async fn hierarchy(&self, scoop: &Scoop) -> Result<HierarchyId, Fault> {
        let id = self.id(scoop).await?;
        match scoop.find(id).await {
            Ok(found) => Ok(found.id()),
            Err(RuntimeError::WrongId {
                named: IdObject::Run { hierarchy, .. } | IdObject::Message { hierarchy, .. },
                ..
            }) => Ok(hierarchy),
            Err(error) => Err(error.into()),
        }
    }
}
