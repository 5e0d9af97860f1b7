//! The topology: which steps launch messages on which topics.

use std::time::SystemTime;

use futures_util::future::FutureExt;
use serde::{Serialize, Serializer};

use crate::util::format::utc;
use crate::util::patience::GivenUp;
use crate::{RuntimeError, Scoop};

/// The topology of a database: who launches what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// The topics on which steps launch messages, by saga, step and topic.
    pub launches: Vec<StepLaunch>,
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
    pub is_declared: bool,
    /// When a program launched the first such message; `None` if that is only declared.
    #[serde(serialize_with = "as_text")]
    pub seen_at: Option<SystemTime>,
}

#[expect(clippy::ref_option, reason = "serde wants a reference")]
fn as_text<S: Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(utc).serialize(serializer)
}

impl Scoop {
    /// The topology of the database.
    ///
    /// A launch is known shortly after it has happened for the first time, or once a program starts whose step declares it.
    ///
    /// # Errors
    ///
    /// If the database fails.
    ///
    /// # Cancel safety
    ///
    /// The call only reads.
    ///
    /// ```no_run
    /// # async fn example(scoop: scoop_runtime::Scoop) -> Result<(), scoop_runtime::RuntimeError> {
    /// for launch in scoop.topology().await?.launches {
    ///     println!("step {} of {} launches messages on {}", launch.step, launch.saga, launch.topic);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn topology(&self) -> impl Future<Output = Result<Topology, RuntimeError>> + Send {
        async move {
            let launches = self.read_patiently(|_| self.store().launches(None)).await;
            let launches = launches.map_err(GivenUp::error("the topology was read"))?;
            Ok(Topology { launches })
        }
        .boxed()
    }
}
