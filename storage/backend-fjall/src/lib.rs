//! tideline-backend-fjall
