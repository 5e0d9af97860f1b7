//! The sagas of a deployment, and the processes that they start and end.

use std::sync::Arc;
use std::time::Duration;

use scoop::operate::OperateExt as _;
use scoop::pauses::PauseTarget;
use scoop::prelude::*;
use tokio::sync::Mutex;

use crate::build::Build;

/// The time after which a deployment goes on although begun runs are left: these go on by the names of their steps.
const DRAINED_WITHIN: Duration = Duration::from_secs(30);

/// The limit of each pause, for a deployment that nobody continues.
const PAUSED_FOR: Duration = Duration::from_secs(120);

/// The source of its pauses.
const SOURCE: &str = "deployment";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Version {
    Before,
    After,
    /// It is configured wrongly, and does not start.
    Broken,
}

/// A new version of a service, which changes a saga. Other services may subscribe to it, too: the deployment waits for them.
#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "deployments")]
pub(crate) struct Deployment {
    pub(crate) saga: String,
    pub(crate) from: Version,
    pub(crate) to: Version,
}

/// The part of a deployment during which sagas are paused.
#[derive(Clone, Message, Serialize, Deserialize)]
#[message(topic = "deployments.rollouts")]
pub(crate) struct Rollout {
    sagas: Vec<String>,
    from: Version,
    to: Version,
}

#[derive(Clone)]
pub(crate) struct Deployments {
    scoop: Scoop,
}

#[saga(name = "deployments")]
#[subscribes(Deployment)]
impl Deployments {
    /// The clean-up follows when the rollout has ended, however it did.
    #[step(finally = resume)]
    async fn pause(&self, scope: &mut Scope<'_>, deployment: &Deployment) -> Result<()> {
        let sagas = self.affected(&deployment.saga).await?;
        for saga in &sagas {
            let pause = self
                .scoop
                .operate()
                .pauses()
                .pause(PauseTarget::handler(saga))
                .new_runs_only()
                .source(SOURCE);
            pause.reason(format!("to {:?}", deployment.to)).for_at_most(PAUSED_FOR).await?;
        }
        scope.launch(Rollout { sagas, from: deployment.from, to: deployment.to }).await?;
        Ok(())
    }

    async fn resume(&self, _: &mut Scope<'_>, _: &Deployment) -> Result<()> {
        for pause in
            self.scoop.operate().pauses().list().await?.into_iter().filter(|pause| pause.source == SOURCE)
        {
            self.scoop.operate().pauses().resume(pause.target).source(SOURCE).await?;
        }
        Ok(())
    }
}

impl Deployments {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self { scoop: fleet.0.scoop.clone() }
    }

    /// The saga, and those that launch to it: the begun runs of these wait for it.
    async fn affected(&self, saga: &str) -> Result<Vec<String>> {
        let mut sagas = self.scoop.operate().topology().await?.affected_by(saga).upstream;
        sagas.push(saga.to_owned());
        Ok(sagas)
    }
}

#[derive(Clone)]
pub(crate) struct Rollouts {
    fleet: Fleet,
}

#[saga(name = "rollouts")]
#[subscribes(Rollout)]
impl Rollouts {
    #[step]
    async fn drain(&self, _: &mut Scope<'_>, rollout: &Rollout) -> Result<()> {
        for saga in &rollout.sagas {
            self.fleet
                .0
                .scoop
                .operate()
                .pauses()
                .drained(PauseTarget::handler(saga))
                .within(DRAINED_WITHIN)
                .await?;
        }
        Ok(())
    }

    #[step(rollback = start_former)]
    async fn end_former(&self, _: &mut Scope<'_>, _: &Rollout) -> Result<()> {
        self.fleet.end().await
    }

    /// It is healthy once it has registered its sagas. A real deployment would ask its service.
    #[step]
    async fn start(&self, _: &mut Scope<'_>, rollout: &Rollout) -> Result<()> {
        self.fleet.start(rollout.to).await
    }

    async fn start_former(&self, _: &mut Scope<'_>, rollout: &Rollout, _: &Failure) -> Result<()> {
        self.fleet.start(rollout.from).await
    }
}

impl Rollouts {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self { fleet: fleet.clone() }
    }
}

/// The process that runs the sagas of the shop. Starting and ending it again changes nothing, so that steps may be repeated.
#[derive(Clone)]
pub(crate) struct Fleet(Arc<Inner>);

struct Inner {
    scoop: Scoop,
    url: String,
    schema: String,
    running: Mutex<Option<(Version, Build)>>,
}

impl Fleet {
    pub(crate) fn new(scoop: Scoop, url: &str, schema: &str) -> Self {
        let (url, schema) = (url.to_owned(), schema.to_owned());
        Self(Arc::new(Inner { scoop, url, schema, running: Mutex::default() }))
    }

    pub(crate) async fn version(&self) -> Option<Version> {
        self.0.running.lock().await.as_ref().map(|(version, _)| *version)
    }

    pub(crate) async fn start(&self, version: Version) -> Result<()> {
        let mut running = self.0.running.lock().await;
        if running.as_ref().is_some_and(|(other, _)| *other == version) {
            return Ok(());
        }
        *running = None;
        let (url, schema) = (&self.0.url, &self.0.schema);
        let build = match version {
            Version::Before => Build::before("before", url, schema).await?,
            Version::After => Build::after(url, schema).await?,
            Version::Broken => Build::after("no address", schema).await?,
        };
        *running = Some((version, build));
        Ok(())
    }

    /// Shuts the process down: steps in flight end first.
    pub(crate) async fn end(&self) -> Result<()> {
        match self.0.running.lock().await.take() {
            Some((_, build)) => build.end().await,
            None => Ok(()),
        }
    }

    /// Kills the process, and starts another one of the same version.
    pub(crate) async fn crash(&self) -> Result<()> {
        let killed = self.0.running.lock().await.take();
        let Some((version, build)) = killed else { return Ok(()) };
        build.kill().await?;
        self.start(version).await
    }
}
