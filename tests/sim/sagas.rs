//! The sagas of the simulation. Their code does what the message says.

use scoop::prelude::*;

use crate::act::{Act, Answer, Mark0, Mark1, Mark2, One, Three, Two, Zero};
use crate::scenario::Scenario;
use crate::versions;
use crate::world::{Alive, Code};

/// Begins an act of a saga.
macro_rules! act {
    ($self:ident, $scope:ident, $code:ident, $message:ident, $step:literal) => {
        Act::new(&$self.0, $scope, Code::$code, &$message.emit, $step)
    };
}

pub(crate) struct Alpha(pub(crate) Alive);

#[saga(name = "alpha")]
#[subscribes(Zero)]
impl Alpha {
    #[step(rollback = undo_first, on_child_failure = handle_first)]
    async fn first(&self, scope: &mut Scope<'_>, message: &Zero) -> Result<With<AlphaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    #[step(rollback = undo_second, on_child_failure = handle_second, finally = clean_up_second)]
    async fn second(&self, scope: &mut Scope<'_>, message: &Zero, first: &Mark0) -> Result<Mark1> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        let mark = Mark1(act.mark());
        act.run().await?;
        Ok(mark)
    }

    #[step(rollback = undo_third, retry(max = 1, backoff = "30ms"))]
    async fn third(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        first: &Mark0,
        second: Option<&Mark1>,
    ) -> Result<With<AlphaStep, Mark2>> {
        let act = act!(self, scope, Step, message, 2);
        act.remembers(Some(&first.0));
        if let Some(second) = second {
            act.remembers(Some(&second.0));
        }
        let mark = Mark2(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    const STEPS: [AlphaStep; 3] = [AlphaStep::First, AlphaStep::Second, AlphaStep::Third];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_second(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        mark: &Mark1,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 1);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_third(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        mark: &Mark2,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 2);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn handle_first(
        &self,
        scope: &mut Scope<'_>,
        message: &Zero,
        failure: &Failure,
    ) -> Result<Next<AlphaStep>> {
        let act = act!(self, scope, OnChildFailure, message, 0);
        Ok(act.handling(failure).run().await?.next(&Self::STEPS))
    }

    async fn handle_second(&self, scope: &mut Scope<'_>, message: &Zero, failure: &Failure) -> Result<()> {
        let act = act!(self, scope, OnChildFailure, message, 1);
        act.handling(failure).run().await.map(drop)
    }

    async fn clean_up_second(&self, scope: &mut Scope<'_>, message: &Zero) -> Result<()> {
        act!(self, scope, Finally, message, 1).run().await.map(drop)
    }
}

pub(crate) struct Beta(pub(crate) Alive);

#[saga(name = "beta")]
#[subscribes(One)]
impl Beta {
    #[step(
        rollback = undo_first,
        retry(max = 2, backoff = "20ms..1s"),
        rollback_retry(max = 1, backoff = "10ms")
    )]
    async fn first(&self, scope: &mut Scope<'_>, message: &One) -> Result<With<BetaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    #[step(rollback = undo_second)]
    async fn second(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        first: &Mark0,
    ) -> Result<With<BetaStep, Mark1>> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        let mark = Mark1(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    const STEPS: [BetaStep; 2] = [BetaStep::First, BetaStep::Second];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_second(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        mark: &Mark1,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 1);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

pub(crate) struct Gamma(pub(crate) Alive);

#[saga(name = "gamma")]
#[subscribes(One)]
impl Gamma {
    #[step(rollback = undo_first, on_child_failure = handle_first, finally = clean_up_first)]
    async fn first(&self, scope: &mut Scope<'_>, message: &One) -> Result<Mark0> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        act.run().await?;
        Ok(mark)
    }

    #[step]
    async fn second(&self, scope: &mut Scope<'_>, message: &One, first: &Mark0) -> Result<Next<GammaStep>> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        Ok(act.run().await?.next(&Self::STEPS))
    }

    const STEPS: [GammaStep; 2] = [GammaStep::First, GammaStep::Second];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &One,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn handle_first(&self, scope: &mut Scope<'_>, message: &One, failure: &Failure) -> Result<()> {
        let act = act!(self, scope, OnChildFailure, message, 0);
        act.handling(failure).run().await.map(drop)
    }

    async fn clean_up_first(&self, scope: &mut Scope<'_>, message: &One) -> Result<()> {
        act!(self, scope, Finally, message, 0).run().await.map(drop)
    }
}

pub(crate) struct Delta(pub(crate) Alive);

#[saga(name = "delta")]
#[subscribes(Two)]
impl Delta {
    #[step(rollback = undo_first)]
    async fn first(&self, scope: &mut Scope<'_>, message: &Two) -> Result<With<DeltaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        if act.scope.iteration() == 0 && act.turn().is_some_and(|turn| turn.replies) {
            let run = act.scope.lineage().id();
            act.scope.reply(message, Answer { run })?;
        }
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&Self::STEPS).with(mark))
    }

    #[step(rollback = undo_second, rollback_retry(max = 2, backoff = "5ms"))]
    async fn second(
        &self,
        scope: &mut Scope<'_>,
        message: &Two,
        first: &Mark0,
    ) -> Result<With<DeltaStep, Mark1>> {
        let act = act!(self, scope, Step, message, 1);
        act.remembers(Some(&first.0));
        let mark = Mark1(act.mark());
        Ok(act.run().await?.next(&[DeltaStep::Second, DeltaStep::Second]).with(mark))
    }

    const STEPS: [DeltaStep; 2] = [DeltaStep::Second, DeltaStep::Second];

    async fn undo_first(
        &self,
        scope: &mut Scope<'_>,
        message: &Two,
        mark: &Mark0,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }

    async fn undo_second(
        &self,
        scope: &mut Scope<'_>,
        message: &Two,
        mark: &Mark1,
        _: &Failure,
    ) -> Result<()> {
        let act = act!(self, scope, Undo, message, 1);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

pub(crate) struct Zeta(pub(crate) Alive);

#[saga(name = "zeta")]
#[subscribes(Two)]
impl Zeta {
    #[step(rollback = undo, sleep = "50ms")]
    async fn only(&self, scope: &mut Scope<'_>, message: &Two) -> Result<With<ZetaStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&[ZetaStep::Only]).with(mark))
    }

    async fn undo(&self, scope: &mut Scope<'_>, message: &Two, mark: &Mark0, _: &Failure) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

pub(crate) struct Epsilon(pub(crate) Alive);

#[saga(name = "epsilon")]
#[subscribes(Three)]
impl Epsilon {
    #[step(rollback = undo, retry(max = 1, backoff = "40ms"))]
    async fn only(&self, scope: &mut Scope<'_>, message: &Three) -> Result<With<EpsilonStep, Mark0>> {
        let act = act!(self, scope, Step, message, 0);
        let mark = Mark0(act.mark());
        Ok(act.run().await?.next(&[EpsilonStep::Only]).with(mark))
    }

    async fn undo(&self, scope: &mut Scope<'_>, message: &Three, mark: &Mark0, _: &Failure) -> Result<()> {
        let act = act!(self, scope, Undo, message, 0);
        act.undoes(&mark.0);
        act.run().await.map(drop)
    }
}

/// All of them as plain data, in the versions of the scenario.
pub(crate) fn definitions(scenario: &Scenario) -> Vec<scoop::Definition> {
    let mut definitions = vec![Gamma::DEFINITION, Delta::DEFINITION, Zeta::DEFINITION, Epsilon::DEFINITION];
    definitions.extend(versions::definitions(scenario));
    definitions
}
