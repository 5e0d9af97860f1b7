//! Rollback of ended runs on request: every answer, and its consequences.

use super::*;
use crate::support::{Database, Gate, Notes, calls_of, compensated, invoked};

/// A hierarchy of three levels. The child has two handlers, one of which may fail.
mod family {
    use super::*;

    #[derive(ContextKey, Serialize, Deserialize)]
    #[context(key = "family.tenant")]
    pub(super) struct Tenant {
        pub(super) name: String,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    pub(super) struct Order {
        /// The second handler of the child fails, which the root handles.
        pub(super) child_fails: bool,
        /// The root fails after all.
        pub(super) fails: bool,
    }

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "child-topic", reply = u32)]
    pub(super) struct Part {
        pub(super) fails: bool,
    }

    pub(super) struct RootHandler {
        pub(super) notes: Notes,
        pub(super) gate: Gate,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Order)]
    impl RootHandler {
        #[step(name = "0", rollback = undo, on_child_failure = ignore)]
        async fn zero(&self, scope: &mut Scope<'_>, order: &Order) -> Result<u64> {
            invoked(scope);
            scope.launch(Part { fails: order.child_fails }).await?;
            Ok(5)
        }

        async fn ignore(&self, _: &mut Scope<'_>, _: &Order, _: &Failure) -> Result<()> {
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Order, output: &u64, why: &Failure) -> Result<()> {
            compensated(scope);
            let tenant = scope.get::<Tenant>()?.map_or("no tenant".into(), |tenant| tenant.name);
            self.notes.add(format!("root: {output}, {tenant}, {}", why.root_causes()[0].message));
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, order: &Order) -> Result<()> {
            invoked(scope);
            self.gate.pass().await;
            let replies = scope.all_replies::<Part>().await?;
            let replies: Vec<_> = replies.into_iter().map(|reply| (reply.handler, reply.value)).collect();
            self.notes.add(format!("{replies:?}"));
            if order.fails { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    pub(super) struct ChildHandler {
        pub(super) notes: Notes,
        pub(super) gate: Gate,
    }

    #[saga(name = "child-handler")]
    #[subscribes(Part)]
    impl ChildHandler {
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, part: &Part) -> Result<String> {
            invoked(scope);
            scope.set(Tenant { name: "the child's".into() })?;
            scope.reply(part, 42)?;
            scope.launch(Grandchild).await?;
            Ok("kept".into())
        }

        async fn undo(&self, scope: &mut Scope<'_>, _: &Part, output: &String, why: &Failure) -> Result<()> {
            compensated(scope);
            let tenant = scope.get::<Tenant>()?.map_or("no tenant".into(), |tenant| tenant.name);
            self.notes.add(format!("child: {output}, {tenant}, {}", why.root_causes()[0].message));
            self.gate.pass().await;
            Ok(())
        }
    }

    handler! {
        pub(super) Other: "other" on Part;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();

        #[step(name = "1")]
        async fn one(&self, _: &mut Scope<'_>, part: &Part) -> Result<()> {
            if part.fails { Err(SIMULATED.into()) } else { Ok(()) }
        }
    }

    handler! {
        pub(super) GrandchildHandler: "grandchild-handler" on Grandchild;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();
    }

    /// A program with all of them, on a database of its own.
    pub(super) struct Program {
        pub(super) db: Database,
        pub(super) scoop: Scoop,
        pub(super) notes: Notes,
        /// Where the root waits before its second step.
        pub(super) root_gate: Gate,
        /// Where the child's compensation waits.
        pub(super) undo_gate: Gate,
    }

    pub(super) async fn start() -> Result<Program> {
        let db = Database::new().await;
        let (notes, root_gate, undo_gate) = (Notes::default(), Gate::default(), Gate::default());
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
        let scoop = scoop.only::<Other>().only::<GrandchildHandler>();
        let scoop = scoop.provide(RootHandler { notes: notes.clone(), gate: root_gate.clone() });
        let scoop = scoop.provide(ChildHandler { notes: notes.clone(), gate: undo_gate.clone() });
        let scoop = scoop.start().await?;
        Ok(Program { db, scoop, notes, root_gate, undo_gate })
    }

    impl Program {
        /// A committed hierarchy.
        pub(super) async fn ended(&self, child_fails: bool) -> Result<scoop::Handle> {
            self.root_gate.open(1);
            let order = Order { child_fails, fails: false };
            let root = self.scoop.launch(order).with(Tenant { name: "Northwind".into() }).await?;
            assert_eq!(root.ends().await?, Outcome::Committed);
            Ok(root)
        }
    }

    /// The id of the run of this handler.
    pub(super) async fn run_of(root: &scoop::Handle, handler: &str) -> Result<uuid::Uuid> {
        let tree = root.tree().await?;
        let runs = tree.runs();
        let run = runs.iter().find(|run| run.handler == handler).expect("it has such a run");
        Ok(run.lineage.id())
    }
}

use family::*;

/// Values, replies and contexts are those at the end of the hierarchy, long ago. Of the context, the parent's elements
/// count.
#[tokio::test(flavor = "multi_thread")]
async fn finished_hierarchy_is_undone_with_its_values_and_contexts() -> Result<()> {
    let program = start().await?;
    let root = program.ended(false).await?;
    assert_eq!(program.scoop.rollback(root.id(), "sent back").await?, RollbackAnswer::Accepted);
    program.undo_gate.open(1);
    let Outcome::RolledBack(failure) = root.ends().await? else {
        panic!("{}", root.tree().await?);
    };
    assert_eq!((&*failure.kind, &*failure.message), ("RollbackRequestedException", "sent back"));
    assert_eq!(
        program.notes.all(),
        [r#"[("child-handler", 42)]"#, "child: kept, Northwind, sent back", "root: 5, Northwind, sent back",]
    );
    let undone = calls_of(&root);
    undone.of(&["child-handler", "grandchild-handler", "root-handler"]).expect(
        "invoke root-handler/0
        invoke child-handler/0
        invoke grandchild-handler/0
        invoke root-handler/1
        rollback grandchild-handler/0
        rollback child-handler/0
        rollback root-handler/0",
    );
    assert_eq!(undone.of(&["other"]).count(), 2);
    assert_eq!(program.db.unfinished().await, 0);
    Ok(())
}

/// Neither a failure below that was rolled back (W-11) nor a requested rollback of a part (W-14) bars the request. The
/// request for the part covers every handler of its message (W-13).
#[tokio::test(flavor = "multi_thread")]
async fn w_11_w_13_w_14_hierarchy_can_be_undone_after_a_part() -> Result<()> {
    for child_fails in [false, true] {
        let program = start().await?;
        let root = program.ended(child_fails).await?;
        let part = run_of(&root, "child-handler").await?;
        assert_eq!(program.scoop.rollback(part, "not this").await?, RollbackAnswer::Accepted);
        program.undo_gate.open(1);
        let undone =
            |run: &RunInfo| run.handler == "root-handler" || matches!(run.state, RunState::RolledBack(_));
        root.comes_to(|tree| tree.runs().into_iter().all(undone)).await?;
        // The ancestor gets no request, and does not change.
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(calls_of(&root).of(&["root-handler"]).count(), 2);
        let again = program.scoop.rollback(part, "not this").await?;
        assert_eq!(again, RollbackAnswer::AlreadyRolledBack);

        assert_eq!(program.scoop.rollback(root.id(), "nor the rest").await?, RollbackAnswer::Accepted);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
        for handler in ["child-handler", "other", "grandchild-handler", "root-handler"] {
            let calls = calls_of(&root).of(&[handler]);
            assert_eq!(
                calls.count(),
                if handler == "root-handler" { 3 } else { 2 },
                "{handler} is undone once"
            );
        }
        let again = program.scoop.rollback(root.id(), "nor the rest").await?;
        assert_eq!(again, RollbackAnswer::AlreadyRolledBack);
    }
    Ok(())
}

/// W-15: any unfinished run of the hierarchy bars the request, above or below.
#[tokio::test(flavor = "multi_thread")]
async fn w_15_rollback_of_an_unfinished_hierarchy_is_refused() -> Result<()> {
    let program = start().await?;
    let root = program.scoop.launch(Order { child_fails: false, fails: false }).await?;
    program.root_gate.arrivals(1).await;
    let part = run_of(&root, "grandchild-handler").await?;
    for id in [root.id().uuid(), run_of(&root, "root-handler").await?, run_of(&root, "other").await?, part] {
        assert_eq!(program.scoop.rollback(id, "now").await?, RollbackAnswer::StillRunning);
    }
    program.root_gate.open(1);
    assert_eq!(root.ends().await?, Outcome::Committed);

    // While a part is undone, requests for the part and for the whole are refused.
    let child = run_of(&root, "child-handler").await?;
    assert_eq!(program.scoop.rollback(child, "now").await?, RollbackAnswer::Accepted);
    program.undo_gate.arrivals(1).await;
    for id in [root.id().uuid(), child] {
        assert_eq!(program.scoop.rollback(id, "too").await?, RollbackAnswer::StillRunning);
    }
    program.undo_gate.open(1);
    let undone =
        |run: &RunInfo| run.handler == "root-handler" || matches!(run.state, RunState::RolledBack(_));
    root.comes_to(|tree| tree.runs().into_iter().all(undone)).await?;
    assert_eq!(db_requests(&program.db).await, 1, "refused requests are not recorded");
    Ok(())
}

/// The number of recorded rollback requests by clients, which name no step.
async fn db_requests(db: &Database) -> usize {
    let history = db.history().await;
    let rows = history.rows().iter().map(ToString::to_string);
    rows.filter(|row| row.contains(" ROLLBACK_EMITTED · ·")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn unhandled_or_failed_hierarchy_needs_no_rollback() -> Result<()> {
    let program = start().await?;
    let unhandled = program.scoop.launch(Finally).await?;
    assert_eq!(program.scoop.rollback(unhandled.id(), "x").await?, RollbackAnswer::NoHandlers);

    let root = program.scoop.launch(Order { child_fails: false, fails: true }).await?;
    program.root_gate.open(1);
    program.undo_gate.open(1);
    assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));
    assert_eq!(program.scoop.rollback(root.id(), "x").await?, RollbackAnswer::AlreadyRolledBack);
    assert_eq!(db_requests(&program.db).await, 0);
    Ok(())
}

/// Of simultaneous requests for a run, the whole or a part, one is accepted. Each compensation runs once at most.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_requests_at_once_one_is_obeyed() -> Result<()> {
    let program = start().await?;
    let root = program.ended(false).await?;
    let ids =
        [root.id().uuid(), run_of(&root, "child-handler").await?, run_of(&root, "grandchild-handler").await?];
    program.undo_gate.open(1);
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..12 {
        let (scoop, id) = (program.scoop.clone(), ids[n % 3]);
        requests.spawn(async move { scoop.rollback(id, format!("request {n}")).await });
    }
    let answers: Vec<_> = requests.join_all().await.into_iter().collect::<Result<_, _>>()?;
    let accepted = answers.iter().filter(|answer| **answer == RollbackAnswer::Accepted).count();
    assert!((1..=3).contains(&accepted), "{answers:?}");
    assert_eq!(db_requests(&program.db).await, accepted);
    crate::support::eventually("nothing is left", async || program.db.unfinished().await == 0).await;
    for handler in ["child-handler", "other", "grandchild-handler"] {
        assert!(calls_of(&root).of(&[handler]).count() <= 2, "{handler} is undone once");
    }
    program.db.history().await;
    Ok(())
}

mod failed {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo, on_child_failure = ignore] => launches(Child).silently();

        async fn ignore(&self, _: &mut Scope<'_>, _: &Root, _: &Failure) -> Result<()> {
            Ok(())
        }

        rollback undo => done();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => done().silently();
        step "1" one => fails(SIMULATED).silently();
        rollback undo => fails(IllegalStateException("it cannot be undone")).silently();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn request_above_a_failed_rollback_is_refused() -> Result<()> {
        let run = Run::commits((RootHandler, ChildHandler), Root).await?;
        assert_eq!(run.scoop.rollback(run.root.id(), "x").await?, RollbackAnswer::FailedBefore);
        assert_eq!(run.root.ends().await?, Outcome::Committed);
        run.calls().expect("");
        Ok(())
    }
}

mod told_in_vain {
    use super::*;

    handler! {
        RootHandler: "root-handler" on Root;
        step "0" zero [rollback = undo] => launches(Child).silently();
        rollback undo => done();
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero [rollback = undo] => done().silently();
        rollback undo => fails(IllegalStateException("it cannot be undone")).silently();
    }

    /// The failed rollback is never reported as done, for the part or for the whole.
    #[tokio::test(flavor = "multi_thread")]
    async fn request_after_a_failed_rollback_is_answered_with_the_failure() -> Result<()> {
        for whole in [false, true] {
            let run = Run::commits((RootHandler, ChildHandler), Root).await?;
            let id = if whole { run.root.id().uuid() } else { run_of(&run.root, "child-handler").await? };
            assert_eq!(run.scoop.rollback(id, "x").await?, RollbackAnswer::Accepted);
            let failed = |tree: &Tree| {
                tree.runs().into_iter().filter(|run| matches!(run.state, RunState::RollbackFailed(_))).count()
            };
            run.root.comes_to(|tree| failed(tree) == if whole { 2 } else { 1 }).await?;
            assert_eq!(run.scoop.rollback(id, "x").await?, RollbackAnswer::FailedBefore);
            assert_eq!(run.scoop.rollback(run.root.id(), "x").await?, RollbackAnswer::FailedBefore);
            run.calls().expect("");
        }
        Ok(())
    }
}

mod of_two_handlers {
    use super::*;

    handler! {
        Succeeding: "succeeding" on Root;
        step "0" zero [rollback = undo] => done();
        rollback undo => done();
    }

    handler! {
        Failing: "failing" on Root;
        step "0" zero => fails(SIMULATED).silently();
    }

    /// The request is for those handlers of the message that are not undone yet.
    #[tokio::test(flavor = "multi_thread")]
    async fn committed_handler_is_undone_although_another_one_failed() -> Result<()> {
        let run = Run::rolls_back((Succeeding, Failing), Root).await?;
        run.calls().expect("invoke succeeding/0");
        assert_eq!(run.scoop.rollback(run.root.id(), "all of it").await?, RollbackAnswer::Accepted);
        assert!(matches!(run.root.ends().await?, Outcome::RolledBack(_)));
        run.calls().expect(
            "invoke succeeding/0
            rollback succeeding/0",
        );
        assert_eq!(run.scoop.rollback(run.root.id(), "again").await?, RollbackAnswer::AlreadyRolledBack);
        Ok(())
    }
}
