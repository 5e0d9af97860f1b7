//! Replies of children, beyond the conformance scenarios.

use super::*;
use crate::support::{Database, Notes, calls_of, invoked};

mod twice {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "child-topic", reply = u32)]
    struct Ask;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "root-topic")]
    struct Start;

    handler! {
        RootHandler { notes: Notes }: "root-handler" on Start;
        step "0" zero => launches(Ask);

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Start) -> Result<()> {
            let replies = scope.replies::<Ask>().await?;
            self.notes.add(format!("{:?}", replies.iter().map(|reply| reply.value).collect::<Vec<_>>()));
            Ok(())
        }
    }

    struct ChildHandler {
        notes: Notes,
    }

    #[saga(name = "child-handler")]
    #[subscribes(Ask)]
    impl ChildHandler {
        #[step(name = "0", retry(max = 1, backoff = "1ms"))]
        async fn zero(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
            // A failed attempt has not replied.
            scope.reply(ask, 7 + scope.attempt())?;
            self.notes.add(scope.reply(ask, 0).expect_err("it has answered").to_string());
            if scope.attempt() == 0 { Err(SIMULATED.into()) } else { Ok(()) }
        }

        #[step(name = "1", rollback = undo)]
        async fn one(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
            let refused = scope.reply(ask, 9).expect_err("it has answered");
            self.notes.add(refused.to_string());
            // The transaction lives on, and the step ends well.
            sqlx::query("INSERT INTO effect VALUES (1)").execute(scope.tx().await?).await?;
            Ok(())
        }

        async fn undo(&self, scope: &mut Scope<'_>, ask: &Ask, _: &Failure) -> Result<()> {
            self.notes.add(scope.reply(ask, 9).expect_err("it is too late").to_string());
            Ok(())
        }
    }

    /// W-23.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_23_a_second_reply_is_an_ordinary_error() -> Result<()> {
        let db = Database::new().await;
        db.execute("CREATE TABLE effect (n int)").await;
        let notes = Notes::default();
        let scoop = db.scoop().only::<RootHandler>().only::<ChildHandler>();
        let scoop = scoop.provide(RootHandler { notes: notes.clone() });
        let scoop = scoop.provide(ChildHandler { notes: notes.clone() }).start().await?;
        let root = scoop.launch(Start).await?;
        assert_eq!(root.ends().await?, Outcome::Committed);
        assert_eq!(scoop.rollback(root.id(), "undo").await?, RollbackAnswer::Accepted);
        assert!(matches!(root.ends().await?, Outcome::RolledBack(_)));

        let notes = notes.all();
        for (refusal, step) in notes[..3].iter().zip(["0", "0", "1"]) {
            let expected = format!("step `{step}` of saga `child-handler` replies to message ");
            assert!(refusal.contains(&expected), "{refusal}");
            assert!(refusal.contains("write `#[message(replies = u32)]` on `Ask`"), "{refusal}");
        }
        assert_eq!(notes[3], "[8]");
        assert!(notes[4].contains("is a compensation"), "{}", notes[4]);
        assert_eq!(db.number("SELECT count(*) FROM effect").await, 1);
        Ok(())
    }
}

mod windows {
    use super::*;

    #[derive(Message, Serialize, Deserialize)]
    #[message(topic = "child-topic", reply = u32)]
    struct Ask {
        number: u32,
    }

    struct RootHandler {
        notes: Notes,
    }

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<Next<RootHandlerStep>> {
            let iteration = scope.iteration();
            let newest: Vec<_> = scope.replies::<Ask>().await?.iter().map(|reply| reply.value).collect();
            self.notes.add(format!("{newest:?}"));
            // Some answer slower than others.
            for number in [3, 1, 2] {
                scope.launch(Ask { number: number + 10 * iteration }).await?;
            }
            Ok(if iteration < 1 { Next::Repeat } else { Next::Continue })
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            for replies in [scope.replies::<Ask>().await?, scope.all_replies::<Ask>().await?] {
                let replies: Vec<_> = replies.iter().map(|reply| reply.value).collect();
                self.notes.add(format!("{replies:?}"));
            }
            Ok(())
        }

        #[step(name = "2")]
        async fn two(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            assert!(scope.replies::<Ask>().await?.is_empty(), "the step before has asked nothing");
            assert_eq!(scope.all_replies::<Ask>().await?.len(), 6);
            assert!(scope.children().await?.is_empty());
            Ok(())
        }
    }

    #[derive(Default)]
    struct Answering;

    #[saga(name = "answering")]
    #[subscribes(Ask)]
    impl Answering {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, ask: &Ask) -> Result<()> {
            crate::support::takes(u64::from(ask.number % 10) * 5).await;
            scope.reply(ask, ask.number)
        }
    }

    handler! {
        Silent: "silent" on Ask;
        step "0" zero => done();
    }

    /// W-48: the replies of the last step's messages, in the order of the messages; all of the run's
    /// on request.
    #[tokio::test(flavor = "multi_thread")]
    async fn w_48_replies_in_a_loop_are_those_of_the_last_iteration_in_order() -> Result<()> {
        let notes = Notes::default();
        let run = Run::launch((RootHandler { notes: notes.clone() }, Answering, Silent), Root).await?;
        assert_eq!(run.root.ends().await?, Outcome::Committed, "{}", run.root.tree().await?);
        assert_eq!(notes.all(), ["[]", "[3, 1, 2]", "[13, 11, 12]", "[3, 1, 2, 13, 11, 12]"]);
        Ok(())
    }
}

mod unreadable {
    use super::*;

    mod asked {
        use super::*;

        /// The reply type of the asking program.
        #[derive(Serialize, Deserialize)]
        pub(super) struct Price {
            pub(super) cents: u64,
        }

        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = "child-topic", reply = Price)]
        pub(super) struct Ask;
    }

    mod answered {
        use super::*;

        /// The reply type of the answering program, another version.
        #[derive(Serialize, Deserialize)]
        pub(super) struct Price {
            pub(super) euros: String,
        }

        #[derive(Message, Serialize, Deserialize)]
        #[message(topic = "child-topic", reply = Price)]
        pub(super) struct Ask;
    }

    #[derive(Default)]
    struct RootHandler;

    #[saga(name = "root-handler")]
    #[subscribes(Root)]
    impl RootHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(asked::Ask).await?;
            Ok(())
        }

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            invoked(scope);
            let cents: u64 = scope.replies::<asked::Ask>().await?.iter().map(|reply| reply.value.cents).sum();
            unreachable!("{cents}");
        }
    }

    #[derive(Default)]
    struct ChildHandler;

    #[saga(name = "child-handler")]
    #[subscribes(answered::Ask)]
    impl ChildHandler {
        #[step(name = "0")]
        async fn zero(&self, scope: &mut Scope<'_>, ask: &answered::Ask) -> Result<()> {
            scope.reply(ask, answered::Price { euros: "1,10".into() })
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unreadable_reply_makes_the_run_stuck_and_names_the_mismatch() -> Result<()> {
        let db = Database::new().await;
        let scoop = db.start((RootHandler, ChildHandler)).await?;
        let root = scoop.launch(Root).await?;
        let is_stuck = |tree: &scoop::tree::Tree| matches!(tree.roots()[0].state, RunState::Stuck { .. });
        let message = root.comes_to(is_stuck).await?.roots()[0].children[0].message_id;
        let [stuck] = &*scoop.operate().failures().stuck().await? else { panic!("one run is stuck") };
        let expected = format!(
            "step `1`: the reply of saga `child-handler` to message {message} on topic `child-topic` is no `"
        );
        assert!(stuck.reason.starts_with(&expected), "{}", stuck.reason);
        for part in [
            r#"it is stored as fields ["euros"], and the type reads fields ["cents"]: missing field `cents`"#,
            "start a program whose `",
            "or let the type read both",
        ] {
            assert!(stuck.reason.contains(part), "{}", stuck.reason);
        }
        calls_of(&root).expect("invoke root-handler/1");
        Ok(())
    }
}

mod children {
    use super::*;

    handler! {
        RootHandler { notes: Notes }: "root-handler" on Root;
        #[step(name = "0", rollback = undo)]
        async fn zero(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            scope.launch(Child).await?;
            scope.sleep(std::time::Duration::from_millis(1)).await?;
            Ok(())
        }

        rollback undo => done();

        #[step(name = "1")]
        async fn one(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
            for child in scope.children().await? {
                self.notes.add(format!("{} on {}: {:?}", child.handler, child.topic, child.outcome));
            }
            Ok(())
        }
    }

    handler! {
        ChildHandler: "child-handler" on Child;
        step "0" zero => done();
    }

    /// A sleep is no child.
    #[tokio::test(flavor = "multi_thread")]
    async fn step_gets_the_outcomes_of_the_last_steps_children() -> Result<()> {
        let db = Database::new().await;
        let notes = Notes::default();
        let scoop = db.start((RootHandler { notes: notes.clone() }, ChildHandler)).await?;
        assert_eq!(scoop.launch(Root).await?.ends().await?, Outcome::Committed);
        assert_eq!(notes.all(), ["child-handler on child-topic: Committed"]);
        Ok(())
    }
}
