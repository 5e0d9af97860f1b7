//! Failed messages of compensations.

use super::*;

handler! {
    /// Its compensation launches a message.
    Compensating { faults: Faults }: "root-handler" on Root;
    step "0" zero [rollback = undo] => done();

    #[step(name = "1")]
    async fn one(&self, _: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.faults.check("root 1 goes on")
    }

    rollback undo => launches(Child);
}

fn sagas(builder: scoop::Builder, faults: &Faults) -> scoop::Builder {
    let builder = builder.only::<Compensating>().provide(Compensating { faults: faults.clone() });
    builder.only::<ChildHandler>().provide(ChildHandler { faults: faults.clone() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compensation_whose_message_failed_runs_again_as_a_whole() -> Result<()> {
    let broken = Broken::by(&["root 1 goes on", "child 1 goes on"], sagas).await?;
    assert_eq!(broken.listed().await?, [("root-handler".into(), Next::Itself)]);
    broken.faults.mend("child 1 goes on");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    calls_of(&broken.root).expect(
        "invoke root-handler/0
        rollback root-handler/0
        invoke child-handler/0
        invoke child-handler/1
        rollback child-handler/0
        rollback root-handler/0
        invoke child-handler/0
        invoke child-handler/1",
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_message_of_a_compensation_is_named_with_its_saga_and_its_reason() -> Result<()> {
    let broken = Broken::by(&["root 1 goes on", "child 1 goes on"], sagas).await?;
    let words = "what step `Rollback of 0[0,]` of `root-handler` launched has failed in `child-handler`: it is broken";
    assert_eq!(broken.failed("root-handler").await?.failure.rollback_summary(), words);
    let outcome = broken.root.ends().await?;
    assert_eq!(outcome.to_string(), format!("rollback failed: {words} (because it is broken)"));
    Ok(())
}

/// A retry of the message only undoes that. The compensation has to run again.
#[tokio::test(flavor = "multi_thread")]
async fn compensation_whose_message_was_undone_is_not_done() -> Result<()> {
    let broken = Broken::by(&["root 1 goes on", "child 1 goes on", "child 0"], sagas).await?;
    broken.faults.mend("child 0");
    assert_eq!(broken.retry("child-handler").await?, RepairAnswer::Accepted);
    broken.root.comes_to(rests).await?;
    assert_eq!(broken.listed().await?, [("root-handler".into(), Next::Itself)]);
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    let again = |tree: &scoop::tree::Tree| rests(tree) && tree.runs().len() == 3;
    broken.root.comes_to(again).await?;

    broken.faults.mend("child 1 goes on");
    assert_eq!(broken.retry("root-handler").await?, RepairAnswer::Accepted);
    broken.is_undone().await?;
    let compensations = calls_of(&broken.root).of(&["root-handler"]).count();
    assert_eq!(compensations, 1 + 3, "one step, and its compensation three times");
    Ok(())
}
