//! The input of B16: a saga of ten steps, in a module of its own so that its part of the expansion can be
//! found.

use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
#[message(topic = "ten.steps")]
struct Walk;

mod ten_steps {
    use super::*;

    #[derive(Default)]
    struct Walker;

    #[saga]
    #[subscribes(Walk)]
    impl Walker {
        #[step(rollback = back)]
        async fn one(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step(rollback = back)]
        async fn two(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step(rollback = back)]
        async fn three(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step(rollback = back)]
        async fn four(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step(rollback = back)]
        async fn five(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn six(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn seven(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn eight(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn nine(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        #[step]
        async fn ten(&self, _: &mut Scope<'_>, _: &Walk) -> Result<()> {
            Ok(())
        }

        async fn back(&self, _: &mut Scope<'_>, _: &Walk, _: &Failure) -> Result<()> {
            Ok(())
        }
    }
}

fn main() {}
