"""Convolutional networks: the networks to tune, and some whose tasks only train the cost model.

The weights are random, because latencies do not depend on them. The shapes follow the paper that each function cites.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ConvNormAct(nn.Sequential):
    """Convolution, batch normalization and an optional activation; by default, the spatial size does not change."""

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel: int | tuple[int, int] = 3,
        stride: int = 1,
        padding: int | tuple[int, int] | None = None,
        groups: int = 1,
        dilation: int = 1,
        act: type[nn.Module] | None = nn.ReLU,
    ) -> None:
        if padding is None:
            size = (kernel, kernel) if isinstance(kernel, int) else kernel
            padding = (dilation * (size[0] - 1) // 2, dilation * (size[1] - 1) // 2)
        layers: list[nn.Module] = [
            nn.Conv2d(c_in, c_out, kernel, stride, padding, dilation, groups, bias=False),
            nn.BatchNorm2d(c_out),
        ]
        if act is not None:
            layers.append(act())
        super().__init__(*layers)


class Residual(nn.Module):
    """``act(branch(x) + shortcut(x))``."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None, act: bool = True) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut or nn.Identity()
        self.act: nn.Module = nn.ReLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.act(self.branch(x) + self.shortcut(x))
        return out


class Concat(nn.Module):
    """Runs every branch on the same input and concatenates their channels."""

    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def classifier(features: int, classes: int = 1000) -> nn.Sequential:
    """Global average pooling and a dense layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(features, classes))


def resnet(blocks: tuple[int, ...], bottleneck: bool, groups: int = 1, width: int = 64) -> nn.Module:
    """ResNet and ResNeXt (He et al. 2015, arXiv:1512.03385; Xie et al. 2016, arXiv:1611.05431)."""
    layers: list[nn.Module] = [ConvNormAct(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    c_in = 64
    for stage, count in enumerate(blocks):
        inner = width * 2**stage
        c_out = 64 * 2**stage * (4 if bottleneck else 1)
        for i in range(count):
            stride = 2 if stage > 0 and i == 0 else 1
            if bottleneck:
                branch = nn.Sequential(
                    ConvNormAct(c_in, inner, 1),
                    ConvNormAct(inner, inner, 3, stride, groups=groups),
                    ConvNormAct(inner, c_out, 1, act=None),
                )
            else:
                branch = nn.Sequential(ConvNormAct(c_in, c_out, 3, stride), ConvNormAct(c_out, c_out, 3, act=None))
            same = stride == 1 and c_in == c_out
            layers.append(Residual(branch, None if same else ConvNormAct(c_in, c_out, 1, stride, act=None)))
            c_in = c_out
    return nn.Sequential(*layers, classifier(c_in))


def resnet_18() -> nn.Module:
    """ResNet-18."""
    return resnet((2, 2, 2, 2), bottleneck=False)


def resnet_50() -> nn.Module:
    """ResNet-50."""
    return resnet((3, 4, 6, 3), bottleneck=True)


def resnext_50() -> nn.Module:
    """ResNeXt-50 32x4d, with grouped convolutions."""
    return resnet((3, 4, 6, 3), bottleneck=True, groups=32, width=128)


def mobilenet_v1() -> nn.Module:
    """MobileNetV1 (Howard et al. 2017, arXiv:1704.04861)."""
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)] + [(512, 1)] * 5 + [(1024, 2), (1024, 1)]
    layers: list[nn.Module] = [ConvNormAct(3, 32, 3, 2)]
    c_in = 32
    for c_out, stride in plan:
        layers += [ConvNormAct(c_in, c_in, 3, stride, groups=c_in), ConvNormAct(c_in, c_out, 1)]
        c_in = c_out
    return nn.Sequential(*layers, classifier(c_in))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381)."""
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers: list[nn.Module] = [ConvNormAct(3, 32, 3, 2, act=nn.ReLU6)]
    c_in = 32
    for expand, c_out, count, first_stride in plan:
        for i in range(count):
            stride = first_stride if i == 0 else 1
            hidden = c_in * expand
            steps: list[nn.Module] = [] if expand == 1 else [ConvNormAct(c_in, hidden, 1, act=nn.ReLU6)]
            steps += [
                ConvNormAct(hidden, hidden, 3, stride, groups=hidden, act=nn.ReLU6),
                ConvNormAct(hidden, c_out, 1, act=None),
            ]
            branch = nn.Sequential(*steps)
            layers.append(Residual(branch, act=False) if stride == 1 and c_in == c_out else branch)
            c_in = c_out
    return nn.Sequential(*layers, ConvNormAct(c_in, 1280, 1, act=nn.ReLU6), classifier(1280))


def inception_v3() -> nn.Module:
    """Inception v3 for 299x299 images, without the auxiliary head (Szegedy et al. 2015, arXiv:1512.00567)."""
    conv = ConvNormAct

    def pool(c_in: int, c_out: int) -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(c_in, c_out, 1))

    def block_a(c_in: int, pool_features: int) -> nn.Module:
        return Concat(
            conv(c_in, 64, 1),
            nn.Sequential(conv(c_in, 48, 1), conv(48, 64, 5)),
            nn.Sequential(conv(c_in, 64, 1), conv(64, 96, 3), conv(96, 96, 3)),
            pool(c_in, pool_features),
        )

    def reduce_a(c_in: int) -> nn.Module:
        return Concat(
            conv(c_in, 384, 3, 2, 0),
            nn.Sequential(conv(c_in, 64, 1), conv(64, 96, 3), conv(96, 96, 3, 2, 0)),
            nn.MaxPool2d(3, 2),
        )

    def block_b(c: int) -> nn.Module:
        return Concat(
            conv(768, 192, 1),
            nn.Sequential(conv(768, c, 1), conv(c, c, (1, 7)), conv(c, 192, (7, 1))),
            nn.Sequential(
                conv(768, c, 1), conv(c, c, (7, 1)), conv(c, c, (1, 7)), conv(c, c, (7, 1)), conv(c, 192, (1, 7))
            ),
            pool(768, 192),
        )

    def reduce_b() -> nn.Module:
        return Concat(
            nn.Sequential(conv(768, 192, 1), conv(192, 320, 3, 2, 0)),
            nn.Sequential(conv(768, 192, 1), conv(192, 192, (1, 7)), conv(192, 192, (7, 1)), conv(192, 192, 3, 2, 0)),
            nn.MaxPool2d(3, 2),
        )

    def block_c(c_in: int) -> nn.Module:
        def fork() -> nn.Module:
            return Concat(conv(384, 384, (1, 3)), conv(384, 384, (3, 1)))

        return Concat(
            conv(c_in, 320, 1),
            nn.Sequential(conv(c_in, 384, 1), fork()),
            nn.Sequential(conv(c_in, 448, 1), conv(448, 384, 3), fork()),
            pool(c_in, 192),
        )

    return nn.Sequential(
        conv(3, 32, 3, 2, 0),
        conv(32, 32, 3, 1, 0),
        conv(32, 64, 3),
        nn.MaxPool2d(3, 2),
        conv(64, 80, 1),
        conv(80, 192, 3, 1, 0),
        nn.MaxPool2d(3, 2),
        *(block_a(192, 32), block_a(256, 64), block_a(288, 64)),
        reduce_a(288),
        *(block_b(128), block_b(160), block_b(160), block_b(192)),
        reduce_b(),
        *(block_c(1280), block_c(2048)),
        classifier(2048),
    )


def vgg_11() -> nn.Module:
    """VGG-11 (Simonyan and Zisserman 2014, arXiv:1409.1556), with a small classifier head."""
    layers: list[nn.Module] = []
    c_in = 3
    for c_out, convs in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
        for _ in range(convs):
            layers += [nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU()]
            c_in = c_out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 7 * 7, 1024), nn.ReLU(), nn.Linear(1024, 1000))


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1 (Iandola et al. 2016, arXiv:1602.07360)."""

    def fire(c_in: int, squeeze: int, expand: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(c_in, squeeze, 1),
            nn.ReLU(),
            Concat(
                nn.Sequential(nn.Conv2d(squeeze, expand, 1), nn.ReLU()),
                nn.Sequential(nn.Conv2d(squeeze, expand, 3, padding=1), nn.ReLU()),
            ),
        )

    return nn.Sequential(
        nn.Conv2d(3, 64, 3, 2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        *(fire(64, 16, 64), fire(128, 16, 64), nn.MaxPool2d(3, 2)),
        *(fire(128, 32, 128), fire(256, 32, 128), nn.MaxPool2d(3, 2)),
        *(fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256)),
        nn.Conv2d(512, 1000, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def densenet_small() -> nn.Module:
    """DenseNet with growth 32 (Huang et al. 2016, arXiv:1608.06993), with few layers: more would repeat its tasks."""

    class Dense(nn.Module):
        def __init__(self, c_in: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.BatchNorm2d(c_in), nn.ReLU(), ConvNormAct(c_in, 128, 1), nn.Conv2d(128, 32, 3, padding=1)
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x, self.body(x)], dim=1)

    layers: list[nn.Module] = [ConvNormAct(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    c_in = 64
    for block in range(3):
        for _ in range(3):
            layers.append(Dense(c_in))
            c_in += 32
        if block < 2:
            layers += [ConvNormAct(c_in, c_in // 2, 1), nn.AvgPool2d(2)]
            c_in //= 2
    return nn.Sequential(*layers, classifier(c_in))


def dcgan_generator() -> nn.Module:
    """The generator of DCGAN, with transposed convolutions (Radford et al. 2015, arXiv:1511.06434)."""
    plan = [(256, 128), (128, 64), (64, 32)]
    layers: list[nn.Module] = [nn.Linear(100, 256 * 16), nn.Unflatten(1, (256, 4, 4)), nn.ReLU()]
    for c_in, c_out in plan:
        layers += [nn.ConvTranspose2d(c_in, c_out, 4, 2, 1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())


def unet_small() -> nn.Module:
    """A two-level U-Net with a dilated convolution at its bottom (Ronneberger et al. 2015, arXiv:1505.04597)."""

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down1 = nn.Sequential(ConvNormAct(3, 24, 3), ConvNormAct(24, 24, 3))
            self.down2 = nn.Sequential(nn.MaxPool2d(2), ConvNormAct(24, 56, 3))
            self.bottom = nn.Sequential(nn.MaxPool2d(2), ConvNormAct(56, 112, 3), ConvNormAct(112, 112, 3, dilation=2))
            self.up2 = nn.ConvTranspose2d(112, 56, 2, 2)
            self.join2 = ConvNormAct(112, 56, 3)
            self.up1 = nn.Upsample(scale_factor=2, mode="nearest")
            self.join1 = ConvNormAct(80, 24, 3)
            self.head = nn.Conv2d(24, 5, 1)

        def forward(self, x: Tensor) -> Tensor:
            one = self.down1(x)
            two = self.down2(one)
            three = self.join2(torch.cat([self.up2(self.bottom(two)), two], dim=1))
            out: Tensor = self.head(self.join1(torch.cat([self.up1(three), one], dim=1)))
            return out

    return UNet()


def shufflenet_small() -> nn.Module:
    """ShuffleNet units (Zhang et al. 2017, arXiv:1707.01083): grouped 1x1, channel shuffle, depthwise 3x3."""

    class Unit(nn.Module):
        def __init__(self, channels: int, groups: int) -> None:
            super().__init__()
            self.shuffle = nn.ChannelShuffle(groups)
            self.first = ConvNormAct(channels, channels // 4, 1, groups=groups)
            self.depthwise = ConvNormAct(channels // 4, channels // 4, 3, groups=channels // 4, act=None)
            self.last = ConvNormAct(channels // 4, channels, 1, groups=groups, act=None)

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x + self.last(self.depthwise(self.shuffle(self.first(x)))))

    return nn.Sequential(
        ConvNormAct(3, 48, 3, 2),
        nn.MaxPool2d(3, 2, 1),
        ConvNormAct(48, 240, 3, 2),
        Unit(240, 3),
        ConvNormAct(240, 480, 3, 2, groups=3),
        Unit(480, 3),
        classifier(480),
    )


def efficientnet_small() -> nn.Module:
    """Inverted residuals with squeeze-and-excitation and SiLU (Tan and Le 2019, arXiv:1905.11946)."""

    class Excite(nn.Module):
        def __init__(self, channels: int, squeezed: int) -> None:
            super().__init__()
            self.gate = nn.Sequential(
                nn.AdaptiveAvgPool2d(1),
                nn.Conv2d(channels, squeezed, 1),
                nn.SiLU(),
                nn.Conv2d(squeezed, channels, 1),
                nn.Sigmoid(),
            )

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = x * self.gate(x)
            return out

    layers: list[nn.Module] = [ConvNormAct(3, 32, 3, 2, act=nn.SiLU)]
    for c_in, c_out, kernel, stride in ((32, 24, 3, 2), (24, 40, 5, 2), (40, 80, 3, 2), (80, 112, 5, 1)):
        hidden = c_in * 6
        layers += [
            ConvNormAct(c_in, hidden, 1, act=nn.SiLU),
            ConvNormAct(hidden, hidden, kernel, stride, groups=hidden, act=nn.SiLU),
            Excite(hidden, max(4, c_in // 4)),
            ConvNormAct(hidden, c_out, 1, act=None),
        ]
    return nn.Sequential(*layers, classifier(112))
