//! What a command is about: an id, or a topic with a unique key.

use scoop_runtime::{HierarchyId, Named, RuntimeError, Scoop};
use uuid::Uuid;

use crate::fault::Fault;

/// The object of a command.
#[derive(Debug, clap::Args)]
pub(crate) struct Target {
    /// The id of a run or a hierarchy; for a command that only reads, also that of a message
    #[arg(value_name = "ID", required_unless_present = "key", conflicts_with = "key")]
    id: Option<Uuid>,
    /// The unique key with which the message was launched, instead of an id
    #[arg(long, requires = "topic")]
    key: Option<String>,
    /// The topic of that message
    #[arg(long, requires = "key")]
    topic: Option<String>,
}

impl Target {
    /// The id; that of the hierarchy if a key was given.
    pub(crate) async fn id(&self, scoop: &Scoop) -> Result<Uuid, Fault> {
        match (self.id, &self.topic, &self.key) {
            (Some(id), ..) => Ok(id),
            (None, Some(topic), Some(key)) => match scoop.find_topic_by_key(topic, key).await {
                Ok(found) => Ok(found.id().uuid()),
                // The id follows from the key, so it says nothing to the user.
                Err(RuntimeError::NoSuchMessage { .. }) => Err(Fault::NotFound(format!(
                    "no message was launched on topic `{topic}` with the key `{key}`, or its hierarchy was pruned"
                ))),
                Err(error) => Err(error.into()),
            },
            (None, ..) => Err(Fault::Usage("an id is missing, or --topic and --key".into())),
        }
    }

    /// The hierarchy of it.
    pub(crate) async fn hierarchy(&self, scoop: &Scoop) -> Result<HierarchyId, Fault> {
        let id = self.id(scoop).await?;
        match scoop.find(id).await {
            Ok(found) => Ok(found.id()),
            Err(RuntimeError::WrongId {
                named: Named::Run { hierarchy, .. } | Named::Message { hierarchy, .. },
                ..
            }) => Ok(hierarchy),
            Err(error) => Err(error.into()),
        }
    }
}
