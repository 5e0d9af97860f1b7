#![allow(unused)]
use scoop::prelude::*;

#[derive(Message, Serialize, Deserialize)]
struct Root;

#[derive(Default)]
struct Order;

#[saga]
#[subscribes(Root)]
impl Order {
    #[step]
    async fn number(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        7?;
        Ok(())
    }

    #[step]
    async fn text(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        Err::<(), _>("text")?;
        Ok(())
    }

    #[step]
    async fn option(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        Some(7)?;
        Ok(())
    }

    #[step]
    async fn future(&self, scope: &mut Scope<'_>, _: &Root) -> Result<()> {
        self.helper()?;
        Ok(())
    }

    async fn helper(&self) -> Result<()> {
        Ok(())
    }
}

fn main() {}
