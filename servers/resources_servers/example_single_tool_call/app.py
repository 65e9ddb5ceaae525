"""A weather tool, and a verdict that asks whether it was called (contract-servers 5)."""

from __future__ import annotations

from pydantic import BaseModel

from gym_compose.serving import Call, ResourcesServer, ResourcesServerConfig, Verdict, VerifyRequest, tool


class GetWeatherRequest(BaseModel):
    city: str


class GetWeatherResponse(BaseModel):
    city: str
    weather_description: str


class SimpleWeatherResourcesServer(ResourcesServer):
    """Keeps no state: the base binds a typed session to its episode and refuses a seed after its close."""

    config: ResourcesServerConfig

    @tool
    async def get_weather(self, body: GetWeatherRequest) -> GetWeatherResponse:
        """The weather of one city."""
        return GetWeatherResponse(city=body.city, weather_description=f"The weather in {body.city} is cold.")

    async def verify(self, body: VerifyRequest, call: Call) -> Verdict:  # noqa: ARG002 - stateless
        return Verdict(reward=float(any(item["name"] == "get_weather" for item in body.response.function_calls())))


if __name__ == "__main__":
    SimpleWeatherResourcesServer.run_webserver()
