"""Controllers of admission checks that the manager itself passes."""

from pykueue.manager.checks.controller import ProvisioningController

__all__ = ["ProvisioningController"]
