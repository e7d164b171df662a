"""Every option, and the settings that a start or a reload runs with."""

from karrot.settings.loading import Loaded, SettingsError, checked, load
from karrot.settings.options import OPTIONS, Option, Settings, effective, needs_restart

__all__ = [
    "OPTIONS",
    "Loaded",
    "Option",
    "Settings",
    "SettingsError",
    "checked",
    "effective",
    "load",
    "needs_restart",
]
